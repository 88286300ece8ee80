//! The hot loop allocates nothing: a counting allocator around 10 000 records, on both engines.
//!
//! Between the first and the last batch, on every thread. (What an OpenCL driver written in C
//! allocates is its own affair; that the program creates no OpenCL objects there is tested by
//! counting calls, in `program/devices.rs`.)
//!
//! In a process of its own, because the counter is one for all its threads: the test starts itself
//! again.

use crate::baked::{library, network};
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, recipe};
use crate::engine::opencl::Wanted;
use crate::engine::select::{DeviceWish, Request, start};
use crate::error::Error;
use crate::ir::network::Kind;
use crate::lab::shapes::generated;
use crate::observe::times::StreamTimes;
use crate::observe::trace::Track;
use crate::registry::EngineKind;
use crate::stream::{
    Format, InputShape, OutputFormat, OutputSpec, ResultWriter, SeriesRows, Source, Stream,
};
use crate::sys::counting;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

const RECORDS: usize = 10_000;

/// Input that remembers the counter after the first batch and before the last.
struct Watched {
    bytes: Vec<u8>,
    at: usize,
    /// Bytes of a batch.
    batch: usize,
    span: Rc<Cell<(u64, u64)>>,
}

impl Source for Watched {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.bytes.len() - self.at).min(self.batch);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        let now = counting::allocations();
        // The second batch is read when the first is done or being computed; the third when its
        // answers are out.
        if (2 * self.batch..3 * self.batch).contains(&self.at) {
            self.span.set((now, now));
        } else if n > 0 {
            self.span.set((self.span.get().0, now));
        }
        self.at += n;
        Ok(n)
    }

    fn ready(&self) -> bool {
        true
    }
}

/// Counts the bytes of the answers.
struct Sink(u64);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_is_allocated_between_the_first_and_the_last_batch() {
    const ALONE: &str = "MORTONNET_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "allocations::nothing_is_allocated_between_the_first_and_the_last_batch";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let done = again
            .args([name, "--exact", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        return;
    }
    assert!(
        std::path::Path::new("/etc/OpenCL/vendors/pocl.icd").exists(),
        "PoCL is missing: tests/run installs it"
    );
    let width = network().width;
    let line = |n: usize, width: usize| {
        (0..width)
            .map(|i| ((n * 7 + i * 3) % 17).to_string())
            .collect::<Vec<_>>()
            .join(",")
            + "\n"
    };
    let csv: Vec<u8> = (0..RECORDS)
        .flat_map(|n| line(n, width).into_bytes())
        .collect();
    // Of a time series.
    let window = 8;
    let rows_csv: Vec<u8> = (0..RECORDS * window)
        .flat_map(|n| line(n, width / window).into_bytes())
        .collect();
    let u8s: Vec<u8> = (0..RECORDS * width).map(|i| (i % 17) as u8).collect();
    let devices = [
        (DeviceWish::Host, Some("host")),
        (DeviceWish::OpenCl, Some("mali-midgard")),
        (DeviceWish::OpenCl, Some("thesis-morton")),
        (DeviceWish::OpenCl, Some("thesis-baseline")),
        // Both at once.
        (
            DeviceWish::List(vec![DeviceWish::Host, DeviceWish::OpenCl]),
            None,
        ),
    ];
    for (device, plan) in devices {
        for (format, output, timed, traced, hop) in [
            (Format::Csv, OutputFormat::Class, false, false, None),
            (Format::U8, OutputFormat::Json, false, false, None),
            (Format::U8, OutputFormat::Scores, true, false, None),
            (Format::Csv, OutputFormat::Class, true, true, None),
            (Format::Csv, OutputFormat::Class, false, false, Some(window)),
            (Format::U8, OutputFormat::Class, false, false, Some(3)),
        ] {
            let rows = hop.map(|hop| SeriesRows { window, hop });
            let records = hop.map_or(RECORDS, |hop| (RECORDS * window - window) / hop + 1) as u64;
            let track = traced.then(|| Track::new(Instant::now()));
            let request = Request {
                device: device.clone(),
                compute_units: None,
                plan: plan.map(str::to_string),
                batch: Some(100),
                max_memory: None,
                wanted: Wanted {
                    scores: output != OutputFormat::Class,
                    classes: true,
                },
                timed,
                track,
                sources: Default::default(),
                tries: false,
                grows: false,
            };
            let mut running = start(&request).unwrap();
            let bytes = match format {
                Format::Csv if rows.is_some() => rows_csv.clone(),
                Format::Csv => csv.clone(),
                _ => u8s.clone(),
            };
            let batch = bytes.len() / (RECORDS / 100);
            let span = Rc::new(Cell::new((0, 0)));
            let source = Watched {
                bytes,
                at: 0,
                batch,
                span: Rc::clone(&span),
            };
            let mut times = StreamTimes {
                track,
                ..StreamTimes::default()
            };
            let mut writer = ResultWriter::new(Sink(0), output, OutputSpec::of(network()));
            let shape = InputShape::of(network());
            let mut bad = |why: &Error| panic!("{why}");
            let stream = Stream {
                format: Some(format),
                shape: rows.map_or(shape, |rows| shape.of_rows(rows).unwrap()),
                writer: &mut writer,
                bad: Some(&mut bad),
                left: None,
                expected: None,
                expected_scores: None,
                times: traced.then_some(&mut times),
                asked: None,
            };
            let summary = stream
                .run(
                    running.engine.as_mut(),
                    [Ok(("memory".to_string(), source))].into_iter(),
                )
                .unwrap();
            assert_eq!(summary.records, records);
            let (first, last) = span.get();
            assert!(first > 0);
            let run = format!(
                "{} {plan:?} {format:?} {output:?} {traced} {hop:?}",
                running.device
            );
            assert_eq!(last - first, 0, "{run}: allocations");
            if let Some(track) = track {
                // It was at work.
                let text = track.json("{}", &[], Duration::from_secs(3600));
                let count = |part: &str| text.matches(part).count() as u64;
                assert_eq!(count("\"name\":\"write\""), summary.batches, "{run}");
                assert!(count("\"batch\":") >= 5 * summary.batches, "{run}");
            }
        }
    }
    threads_allocate_nothing();
}

/// From the host engine's construction on, with threads at work (the baked network may be too small
/// for them): split by rows, split by records, computed where it is submitted.
fn threads_allocate_nothing() {
    let (network, weights) = generated("300-1500-40-10:tanh", Kind::Classes).unwrap();
    let recipe = recipe("host", EngineKind::Host).unwrap();
    let model = Model::new(network, &weights, recipe, library(), Some(64)).unwrap();
    let mut engine = HostEngine::new(model, 3, true).unwrap();
    let track = Track::new(Instant::now());
    engine.trace(track).unwrap();
    assert_eq!(engine.threads(), 3);
    let before = counting::allocations();
    for (batch, records) in [64, 1, 40, 64, 3, 64]
        .into_iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        let slot = batch % 2;
        for n in 0..records {
            let mut record = engine.record(slot, n).unwrap();
            (0..300).for_each(|i| record.set(i, (i % 7) as f32));
        }
        engine.submit(slot, records).unwrap();
        if batch % 10 == 9 {
            // Long enough for the threads to fall asleep.
            std::thread::sleep(Duration::from_millis(2));
        }
        engine.collect(1 - slot).unwrap();
    }
    engine.collect(1).unwrap();
    assert!(engine.answer(1, 0).class.is_some());
    assert_eq!(
        counting::allocations() - before,
        0,
        "host engine with threads: allocations"
    );
}
