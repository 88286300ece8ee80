//! What the peers have in common: `PEER THREADS` serves lines as host_peers.py does; `PEER THREADS
//! STEM` answers the first record of a network, prints its results, and stays until the end of
//! stdin, so that its memory can be read.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// A forward pass with resident input; hands its results over without a copy of them.
pub type Forward = Box<dyn FnMut(&mut dyn FnMut(&[f32])) -> Result<(), Failure>>;
/// Makes one of an ONNX file, so many threads, a batch, and the values of its records.
pub type Load = fn(&str, usize, usize, Vec<f32>) -> Result<Forward, Failure>;

/// The version of a package in Cargo.lock.
pub fn version(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let rest = lock
        .split(&format!("name = \"{package}\"\nversion = \""))
        .nth(1)
        .unwrap_or("?");
    rest.split('"').next().unwrap_or("?")
}

/// The records of a .npy file of two dimensions and floats, at most `most`, and how many it has.
fn npy(path: &str, most: usize) -> Result<(Vec<f32>, usize), Failure> {
    let mut file = File::open(path)?;
    let mut start = [0; 10];
    file.read_exact(&mut start)?;
    let mut header = vec![0; u16::from_le_bytes([start[8], start[9]]).into()];
    file.read_exact(&mut header)?;
    let header = String::from_utf8(header)?;
    let shape = header.split(['(', ')']).nth(1).ok_or("no shape")?;
    let shape = shape
        .split(',')
        .map(|n| n.trim().parse())
        .collect::<Result<Vec<usize>, _>>()?;
    if !header.contains("<f4") || shape.len() != 2 || file.seek(SeekFrom::Current(0))? % 16 != 0 {
        return Err(format!("{path}: {header}").into());
    }
    let mut bytes = vec![0; shape[0].min(most) * shape[1] * 4];
    file.read_exact(&mut bytes)?;
    let values = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    Ok((values.collect(), shape[0]))
}

/// The pass and its largest error relative to the largest result.
fn of_file(
    load: Load,
    stem: &str,
    threads: usize,
    batch: usize,
) -> Result<(Forward, f32), Failure> {
    let (some, records) = npy(&format!("{stem}_inputs.npy"), usize::MAX)?;
    let (results, _) = npy(&format!("{stem}_results.npy"), usize::MAX)?;
    let repeated = |values: &[f32]| -> Vec<f32> {
        let width = values.len() / records;
        (0..batch)
            .flat_map(|b| &values[b % records * width..][..width])
            .copied()
            .collect()
    };
    let expected = repeated(&results);
    let mut forward = load(&format!("{stem}.onnx"), threads, batch, repeated(&some))?;
    let mut error = f32::INFINITY;
    forward(&mut |y| {
        if y.len() == expected.len() {
            let largest = expected.iter().fold(0f32, |m, e| m.max(e.abs()));
            // A NaN stays one.
            let worst = y.iter().zip(&expected).map(|(y, e)| (y - e).abs());
            error = worst.fold(0f32, |m, d| if d > m || d.is_nan() { d } else { m }) / largest;
        }
    })?;
    Ok((forward, error))
}

fn median_us(forward: &mut Forward, seconds: f64) -> Result<(f64, usize), Failure> {
    let mut take = |y: &[f32]| {
        black_box(y);
    };
    forward(&mut take)?;
    forward(&mut take)?;
    let (mut times, began) = (vec![], Instant::now());
    while began.elapsed() < Duration::from_secs_f64(seconds) || times.len() < 5 {
        let start = Instant::now();
        forward(&mut take)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let passes = times.len();
    times.sort_by(f64::total_cmp);
    Ok(((times[(passes - 1) / 2] + times[passes / 2]) / 2., passes))
}

pub fn main(name: &str, load: Load) -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments
        .first()
        .ok_or("usage: PEER THREADS [STEM]")?
        .parse()?;
    if let Some(stem) = arguments.get(1) {
        let mut forward = load(
            &format!("{stem}.onnx"),
            threads,
            1,
            npy(&format!("{stem}_inputs.npy"), 1)?.0,
        )?;
        forward(&mut |y| {
            println!(
                "{}",
                y.iter().map(f32::to_string).collect::<Vec<_>>().join(",")
            )
        })?;
        io::copy(&mut io::stdin(), &mut io::sink())?;
        return Ok(());
    }
    println!("{name}");
    io::stdout().flush()?;
    let mut built: Option<(String, Forward, f32)> = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let [stem, batch, seconds] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        let key = format!("{stem} {batch}");
        let answer = || -> Result<String, Failure> {
            if built.as_ref().is_none_or(|b| b.0 != key) {
                built = None;
                let (forward, error) = of_file(load, stem, threads, batch.parse()?)?;
                built = Some((key, forward, error));
            }
            let (_, forward, error) = built.as_mut().ok_or("nothing is built")?;
            let (median, passes) = median_us(forward, seconds.parse()?)?;
            Ok(format!("{median:.3} {passes} {error:.3e}"))
        };
        println!(
            "{}",
            answer().unwrap_or_else(|e| format!("- {e}").replace('\n', " "))
        );
        io::stdout().flush()?;
    }
    Ok(())
}
