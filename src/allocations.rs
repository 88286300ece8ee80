//! Tests that no thread allocates memory between the first and the last batch of a run of 10 000
//! records. An allocator that counts finds allocations. The runs use the host engine, the OpenCL
//! engine, or both.
//!
//! The allocator does not see what an OpenCL driver written in C allocates. The test
//! `program/devices.rs` counts the OpenCL objects that the program creates.
//!
//! The allocator counts for the whole process. So the test starts itself again in a new process
//! that runs no other test.

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
    AnswerFormat, Format, InputShape, OutputSpec, ResultWriter, SeriesRows, Source, Stream,
};
use crate::sys::counting;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

const RECORDS: usize = 10_000;

/// An input in memory that notes how many allocations the process has made: once early in the run,
/// and at the last read.
struct Watched {
    bytes: Vec<u8>,
    at: usize,
    /// The most bytes that one read returns. It is a hundredth of the input, so a read returns one
    /// batch.
    batch: usize,
    counted: Rc<Cell<Counted>>,
}

/// The numbers of allocations that the process had made at two times. `first` was noted when the
/// first batch was answered, `last` at the last read that returned bytes.
#[derive(Clone, Copy, Default)]
struct Counted {
    first: u64,
    last: u64,
}

impl Source for Watched {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.bytes.len() - self.at).min(self.batch);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        let now = counting::allocations();
        // While the second batch is read, the first may still be computed. When the third batch is
        // read, the first is answered.
        let mut counted = self.counted.get();
        if (2 * self.batch..3 * self.batch).contains(&self.at) {
            counted.first = now;
        }
        if n > 0 {
            counted.last = now;
        }
        self.counted.set(counted);
        self.at += n;
        Ok(n)
    }

    fn ready(&self) -> bool {
        true
    }
}

/// An output that drops the answers and only counts their bytes.
struct Sink {
    bytes: u64,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
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
    let cases = [
        (Format::Csv, AnswerFormat::Class, false, false, None),
        (Format::U8, AnswerFormat::Json, false, false, None),
        (Format::U8, AnswerFormat::Scores, true, false, None),
        (Format::Csv, AnswerFormat::Class, true, true, None),
        (Format::Csv, AnswerFormat::Class, false, false, Some(WINDOW)),
        (Format::U8, AnswerFormat::Class, false, false, Some(3)),
    ]
    .map(|(format, output, timed, traced, hop)| AllocationCase {
        format,
        output,
        timed,
        traced,
        hop,
    });
    let both = DeviceWish::List(vec![DeviceWish::Host, DeviceWish::OpenCl]);
    for (device, plan) in [
        (DeviceWish::Host, Some("host")),
        (DeviceWish::OpenCl, Some("mali-midgard")),
        (DeviceWish::OpenCl, Some("thesis-morton")),
        (DeviceWish::OpenCl, Some("thesis-baseline")),
        (both, None),
    ] {
        for case in &cases {
            stream_allocates_nothing(&device, plan, case);
        }
    }
    threads_allocate_nothing();
}

/// The number of rows in a record of the time series that some cases use.
const WINDOW: usize = 8;

/// The options of one test run.
#[derive(Debug)]
struct AllocationCase {
    format: Format,
    output: AnswerFormat,
    timed: bool,
    traced: bool,
    /// The number of rows of the time series from the start of one record to the start of the next.
    /// `None` if the input is no time series.
    hop: Option<usize>,
}

impl AllocationCase {
    /// Returns an input that holds [`RECORDS`] records, if records do not overlap. In CSV a line is
    /// a record, or one row of a time series.
    fn input(&self) -> Vec<u8> {
        let width = network().width;
        let line = |n: usize, width: usize| {
            (0..width)
                .map(|i| ((n * 7 + i * 3) % 17).to_string())
                .collect::<Vec<_>>()
                .join(",")
                + "\n"
        };
        let lines =
            |n: usize, width: usize| (0..n).flat_map(|i| line(i, width).into_bytes()).collect();
        match (self.format, self.hop) {
            (Format::Csv, Some(_)) => lines(RECORDS * WINDOW, width / WINDOW),
            (Format::Csv, None) => lines(RECORDS, width),
            _ => (0..RECORDS * width).map(|i| (i % 17) as u8).collect(),
        }
    }
}

fn stream_allocates_nothing(device: &DeviceWish, plan: Option<&str>, case: &AllocationCase) {
    let track = case.traced.then(|| Track::new(Instant::now()));
    let request = Request {
        device: device.clone(),
        compute_units: None,
        plan: plan.map(str::to_string),
        batch: Some(100),
        max_memory: None,
        wanted: Wanted {
            scores: case.output != AnswerFormat::Class,
            classes: true,
        },
        timed: case.timed,
        track,
        sources: Default::default(),
        tries: false,
        grows: false,
    };
    let mut running = start(&request).unwrap();
    let bytes = case.input();
    let span = Rc::new(Cell::new(Counted::default()));
    let source = Watched {
        batch: bytes.len() / (RECORDS / 100),
        bytes,
        at: 0,
        counted: Rc::clone(&span),
    };
    let mut times = StreamTimes {
        track,
        ..StreamTimes::default()
    };
    let mut writer = ResultWriter::new(Sink { bytes: 0 }, case.output, OutputSpec::of(network()));
    let shape = InputShape::of(network());
    let rows = case.hop.map(|hop| SeriesRows {
        window: WINDOW,
        hop,
    });
    let mut bad = |why: &Error| panic!("{why}");
    let shape = rows.map_or(shape, |rows| shape.of_rows(rows).unwrap());
    let stream = Stream {
        format: Some(case.format),
        bad: Some(&mut bad),
        times: case.traced.then_some(&mut times),
        ..Stream::new(shape, &mut writer)
    };
    let inputs = [Ok(("memory".to_string(), source))].into_iter();
    let summary = stream.run(running.engine.as_mut(), inputs).unwrap();
    let series = |hop| (RECORDS * WINDOW - WINDOW) / hop + 1;
    let records = case.hop.map_or(RECORDS, series) as u64;
    assert_eq!(summary.records, records);
    let Counted { first, last } = span.get();
    let run = format!("{} {plan:?} {case:?}", running.device);
    assert!(first > 0);
    assert_eq!(last - first, 0, "{run}: allocations");
    if let Some(track) = track {
        // For each batch the trace has one `write` span, and at least five spans in all.
        let text = track.json("{}", &[], Duration::from_secs(3600));
        let count = |part: &str| text.matches(part).count() as u64;
        assert_eq!(count("\"name\":\"write\""), summary.batches, "{run}");
        assert!(count("\"batch\":") >= 5 * summary.batches, "{run}");
    }
}

/// Checks that the threads of the host engine allocate nothing once the engine is made. The baked
/// network may be too small to be shared among threads, so the test generates a larger one. Some
/// batches are divided by output rows, some by records, and some are computed by the submitting
/// thread alone.
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
            // During this pause the engine's idle threads fall asleep, so the next batch has to
            // wake them.
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
