//! Tests of the pipeline on a mock engine, and helpers that the tests of the readers share.

use super::*;
use crate::engine::{Answer, Record, RecordMut, RecordRows};
use crate::ir::network::{ByteInput, FinalActivation, Kind, Transform};
use crate::simd::deferred::{Decode, Deferred, Refusal};
use proptest::prelude::*;
use serde_json::json;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// An input shape that owns its names and its transform.
pub(super) struct TestInput {
    pub(super) width: usize,
    pub(super) features: Vec<Cow<'static, str>>,
    pub(super) transform: Transform,
    pub(super) bytes: Option<ByteInput>,
    pub(super) rows: Option<SeriesRows>,
    pub(super) keys: usize,
}

impl TestInput {
    pub(super) fn new(width: usize) -> Self {
        TestInput {
            width,
            features: Vec::new(),
            transform: Transform::Identity,
            bytes: None,
            rows: None,
            keys: 0,
        }
    }

    /// Returns the count of numbers of a record, over all its rows.
    fn record(&self) -> usize {
        self.width * self.rows.map_or(1, |rows| rows.window)
    }

    fn shape(&self) -> InputShape<'_> {
        let (features, transform) = (&self.features[..], &self.transform);
        let shape = InputShape {
            width: self.record(),
            features,
            transform,
            bytes: self.bytes,
            rows: None,
            keys: self.keys,
        };
        self.rows.map_or(shape, |rows| shape.of_rows(rows).unwrap())
    }
}

/// Reads all records of `bytes`, which arrive in one piece. If there are fewer than 2000 bytes,
/// asserts that they give the same records byte by byte. An error is returned as text.
pub(super) fn read(
    format: Option<Format>,
    input: &TestInput,
    bytes: &[u8],
) -> Result<Vec<Vec<f32>>, String> {
    let at_once = read_pieces(format, input, vec![bytes.to_vec()]);
    if bytes.len() < 2000 {
        let pieces = bytes.iter().flat_map(|&b| [vec![b], vec![]]).collect();
        assert_eq!(read_pieces(format, input, pieces), at_once, "byte by byte");
    }
    at_once
}

fn read_pieces(
    format: Option<Format>,
    input: &TestInput,
    pieces: Vec<Vec<u8>>,
) -> Result<Vec<Vec<f32>>, String> {
    let mut reader = RecordReader::new(
        MemorySource::new(pieces),
        "stdin".into(),
        format,
        input.shape(),
    );
    let rows = RecordRows::first(input.record());
    let mut records = Vec::new();
    loop {
        match reader.advance().map_err(|e| e.to_string())? {
            Next::Record => {
                let mut data = vec![f32::NAN; input.record()];
                reader
                    .decode(&mut RecordMut::new(&mut data, &rows, 0))
                    .map_err(|e| e.to_string())?;
                records.push(data);
            }
            Next::Bad(why) => panic!("{why}"),
            Next::Idle => reader.wait().map_err(|e| e.to_string())?,
            Next::End => return Ok(records),
        }
    }
}

/// Makes an idx file of elements with the type code `code`.
pub(super) fn idx(code: u8, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, code, sizes.len() as u8];
    file.extend(sizes.iter().flat_map(|s| s.to_be_bytes()));
    file.extend(data);
    file
}

/// Makes an npy file. `descr` and `shape` are texts of the file's header.
pub(super) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SlotState {
    /// The index of the next record to be filled.
    Filling(usize),
    Submitted(usize),
    Collected(usize),
}

/// A mock engine. A record's scores are the sum of its numbers and its first number. The engine
/// panics if the pipeline breaks the rules of [`Engine`].
struct MockEngine {
    batch: usize,
    width: usize,
    rows: RecordRows,
    /// Set if the engine takes records as bytes.
    deferred: Option<[Deferred; SLOTS]>,
    inputs: [Vec<f32>; SLOTS],
    scores: [Vec<f32>; SLOTS],
    states: [SlotState; SLOTS],
    submitted: Vec<usize>,
}

impl MockEngine {
    fn new(batch: usize, width: usize) -> Self {
        MockEngine {
            batch,
            width,
            // The features stand in reverse order, so that a test fails if the pipeline ignores
            // `rows`.
            rows: RecordRows::new((0..width as u32).rev().collect()),
            deferred: None,
            inputs: [(); SLOTS].map(|()| vec![f32::NAN; batch * width]),
            scores: [(); SLOTS].map(|()| vec![f32::NAN; batch * 2]),
            states: [SlotState::Filling(0); SLOTS],
            submitted: Vec::new(),
        }
    }

    /// Makes a mock engine that takes two of three records as bytes, and decodes them itself.
    fn deferring(batch: usize, width: usize) -> Self {
        MockEngine {
            rows: RecordRows::first(width),
            deferred: Some([(); SLOTS].map(|()| Deferred::new(batch, width))),
            ..MockEngine::new(batch, width)
        }
    }

    /// Checks that record `index` of `slot` may be filled now.
    fn fill(&mut self, slot: usize, index: usize) {
        assert!(index < self.batch);
        match self.states[slot] {
            SlotState::Submitted(_) => panic!("slot {slot} is still computed"),
            SlotState::Filling(next) => assert!(index == next || index + 1 == next || index == 0),
            SlotState::Collected(_) => assert_eq!(index, 0),
        }
        self.states[slot] = SlotState::Filling(index + 1);
    }
}

impl Engine for MockEngine {
    fn batch(&self) -> usize {
        self.batch
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        self.fill(slot, index);
        Ok(RecordMut::new(
            &mut self.inputs[slot],
            &self.rows,
            index * self.width,
        ))
    }

    fn defer(&mut self, slot: usize, index: usize, decode: &Arc<dyn Decode>, bytes: &[u8]) -> bool {
        // Every third record is not taken as bytes, so that the stream decodes it.
        let Some(deferred) = self.deferred.as_mut().filter(|_| index % 3 != 2) else {
            return false;
        };
        let taken = deferred[slot].push(index, decode, bytes);
        if taken {
            self.fill(slot, index);
        }
        taken
    }

    fn refused(&self, slot: usize, from: usize) -> Option<(usize, Refusal)> {
        self.deferred.as_ref()?[slot].refused(self.width, from)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        assert!(matches!(self.states[slot], SlotState::Filling(n) if (1..=n).contains(&records)));
        self.states[slot] = SlotState::Submitted(records);
        self.submitted.push(records);
        Ok(())
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        let SlotState::Submitted(records) = self.states[slot] else {
            panic!("slot {slot} was not submitted")
        };
        if let Some(deferred) = &mut self.deferred {
            deferred[slot].submit();
            let records = self.inputs[slot].chunks_exact_mut(self.width).enumerate();
            records.for_each(|(i, values)| deferred[slot].decode(i, values));
        }
        let records = self.inputs[slot].chunks_exact(self.width).take(records);
        for (scores, record) in self.scores[slot].chunks_exact_mut(2).zip(records) {
            scores.copy_from_slice(&[
                record.iter().sum(),
                record[if self.rows.are_neighbours() {
                    0
                } else {
                    self.width - 1
                }],
            ]);
        }
        let SlotState::Submitted(records) = self.states[slot] else {
            unreachable!()
        };
        self.states[slot] = SlotState::Collected(records);
        // The input is overwritten, so that no later batch can use it again.
        self.inputs[slot].fill(f32::NAN);
        Ok(())
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        assert!(matches!(self.states[slot], SlotState::Collected(n) if index < n));
        Answer {
            class: None,
            scores: Record::new(&self.scores[slot], &[0, 1], index * 2),
        }
    }
}

const VALUES: OutputSpec<'_> = OutputSpec {
    kind: Kind::Values,
    activation: FinalActivation::None,
    threshold: 0.5,
    outputs: 2,
    labels: &[],
    named: &[],
};

/// The output of a run of the stream, and its result.
struct Ran {
    text: String,
    result: Result<Summary, String>,
    batches: Vec<usize>,
    /// The reason of each bad record, in order.
    reasons: Vec<String>,
    /// The name of each input that ended with rows in no record, and the number of these rows.
    left: Vec<(String, usize)>,
}

/// Runs the stream on an engine that takes records as numbers, and on one that takes bytes. Asserts
/// that both give the same.
fn run<S: Source, I: IntoIterator<Item = Result<(String, S), Error>>>(
    batch: usize,
    input: &TestInput,
    format: Option<Format>,
    sources: impl Fn() -> I,
) -> Ran {
    run_with(false, AnswerFormat::Scores, batch, input, format, sources)
}

/// Like [`run`], with two more choices: whether bad records are marked, and the format of the
/// answers.
fn run_with<S: Source, I: IntoIterator<Item = Result<(String, S), Error>>>(
    mark: bool,
    output: AnswerFormat,
    batch: usize,
    input: &TestInput,
    format: Option<Format>,
    sources: impl Fn() -> I,
) -> Ran {
    let [ran, deferred] = [MockEngine::new, MockEngine::deferring].map(|mock| {
        run_on(
            mock(batch, input.record()),
            mark,
            output,
            input,
            format,
            sources(),
        )
    });
    assert_eq!((&deferred.text, &deferred.result), (&ran.text, &ran.result));
    assert_eq!(
        (&deferred.reasons, &deferred.left),
        (&ran.reasons, &ran.left)
    );
    if ran.result.is_ok() {
        // The engine that takes bytes finds a bad record only when it decodes. By then more batches
        // are submitted, so the batches are compared only without an error.
        assert_eq!(deferred.batches, ran.batches);
    }
    ran
}

fn run_on<S: Source>(
    mut engine: impl Engine + Batches,
    mark: bool,
    output: AnswerFormat,
    input: &TestInput,
    format: Option<Format>,
    sources: impl IntoIterator<Item = Result<(String, S), Error>>,
) -> Ran {
    let (mut out, mut reasons, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut bad = |why: &Error| reasons.push(why.to_string());
    let mut left = |input: &str, rows: usize| rest.push((input.to_string(), rows));
    let mut writer = ResultWriter::new(&mut out, output, VALUES);
    let stream = Stream {
        format,
        bad: if mark { Some(&mut bad) } else { None },
        left: Some(&mut left),
        ..Stream::new(input.shape(), &mut writer)
    };
    let result = stream
        .run(&mut engine, sources.into_iter())
        .map_err(|e| e.to_string());
    Ran {
        text: String::from_utf8(out).unwrap(),
        result,
        batches: engine.batches(),
        reasons,
        left: rest,
    }
}

fn memory(
    place: &str,
    pieces: impl IntoIterator<Item = Vec<u8>>,
) -> Result<(String, MemorySource), Error> {
    Ok((place.into(), MemorySource::new(pieces)))
}

const ALL_FORMATS: [Format; 5] = [
    Format::Csv,
    Format::U8,
    Format::F32,
    Format::Idx,
    Format::Npy,
];

/// Cuts `bytes` into pieces of the lengths in `cuts`. If the flag of a cut is true, a pause follows
/// its piece.
fn cut(bytes: &[u8], cuts: &[(u8, bool)]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for &(n, pause) in cuts.iter().cycle().take(10_000) {
        let (piece, after) = rest.split_at(rest.len().min(n.into()));
        rest = after;
        if !piece.is_empty() {
            pieces.push(piece.to_vec());
        }
        if pause {
            pieces.push(vec![]);
        }
        if rest.is_empty() {
            break;
        }
    }
    pieces.push(rest.to_vec());
    // If this last piece is empty, it is a pause before the end.
    pieces
}

fn encode(format: Format, records: &[Vec<u8>], width: usize) -> Vec<u8> {
    let flat: Vec<u8> = records.concat();
    match format {
        Format::Csv => {
            let line =
                |r: &Vec<u8>| r.iter().map(u8::to_string).collect::<Vec<_>>().join(",") + "\n";
            records.iter().map(line).collect::<String>().into_bytes()
        }
        Format::U8 | Format::I8 => flat,
        Format::F32 => flat
            .iter()
            .flat_map(|&b| f32::from(b).to_le_bytes())
            .collect(),
        Format::Idx => idx(8, &[records.len() as u32, width as u32], &flat),
        Format::Npy => npy("|u1", &format!("({}, {width})", records.len()), &flat),
    }
}

proptest! {
    #[test]
    fn answers_come_in_order(
        width in 1usize..5,
        batch in 1usize..8,
        counts in proptest::collection::vec(0usize..20, 1..4),
        format in proptest::sample::select(&ALL_FORMATS),
        cuts in proptest::collection::vec((1u8..30, any::<bool>()), 1..8),
        seed in any::<u8>(),
    ) {
        let mut value = seed;
        let mut next = || {
            value = value.wrapping_mul(5).wrapping_add(113);
            value
        };
        let mut expected = String::new();
        let files: Vec<_> = counts.iter().map(|&n| {
            let mut record = || (0..width).map(|_| next()).collect();
            let records: Vec<Vec<u8>> = (0..n).map(|_| record()).collect();
            for r in &records {
                expected += &format!("{},{}\n", r.iter().map(|&b| u32::from(b)).sum::<u32>(), r[0]);
            }
            cut(&encode(format, &records, width), &cuts)
        }).collect();
        let total: usize = counts.iter().sum();
        let files = || {
            let all = files.iter().enumerate();
            all.map(|(i, pieces)| memory(&format!("file {i}"), pieces.clone()))
        };
        let ran = run(batch, &TestInput::new(width), Some(format), files);
        prop_assert_eq!(&ran.text, &expected);
        let batches = ran.batches.len() as u64;
        prop_assert_eq!(ran.result, Ok(Summary { records: total as u64, batches, marked: 0 }));
        if cuts.iter().all(|&(_, pause)| !pause) {
            // Without a pause all batches but the last are full. Each file may add one pause,
            // because its last piece can be empty.
            prop_assert!(ran.batches.len() <= total.div_ceil(batch) + counts.len());
        }
    }
}

#[test]
fn batches_are_full_where_input_is_plentiful_and_files_share_them() {
    let two = || {
        [
            memory("a", [b"1\n2\n3\n".to_vec()]),
            memory("b", [b"4\n5".to_vec(), b"\n6\n7\n".to_vec()]),
        ]
    };
    let ran = run(4, &TestInput::new(1), None, two);
    assert_eq!(ran.batches, [4, 3]);
    assert_eq!(ran.text, "1,1\n2,2\n3,3\n4,4\n5,5\n6,6\n7,7\n");
    assert_eq!(run(100, &TestInput::new(1), None, two).batches, [7]);
}

#[test]
fn an_error_comes_after_the_answers_before_it() {
    for batch in [1, 2, 3, 100] {
        let ran = run(batch, &TestInput::new(1), None, || {
            [memory("in.csv", [b"1\n2\n3\n\nx\n5\n".to_vec()])]
        });
        assert_eq!(ran.text, "1,1\n2,2\n3,3\n");
        assert_eq!(
            ran.result,
            Err("in.csv:5:1: expected a number, found \"x\"".into())
        );
        let missing = || Err(Error::io("b.csv", io::ErrorKind::NotFound.into()));
        let ran = run(batch, &TestInput::new(1), None, || {
            [memory("a.csv", [b"1\n2\n".to_vec()]), missing()]
        });
        assert_eq!(ran.text, "1,1\n2,2\n");
        assert!(ran.result.unwrap_err().starts_with("b.csv: "));
        let files = || {
            [
                memory("a.csv", [b"1,2\n".to_vec()]),
                memory("b.csv", [b"\n3,4\n5,x\n".to_vec()]),
            ]
        };
        let ran = run(batch, &TestInput::new(2), None, files);
        assert_eq!(ran.text, "3,1\n7,3\n");
        assert_eq!(
            ran.result,
            Err("b.csv:3:2: expected a number, found \"x\"".into())
        );
        // The first bad record is reported, even if the second one ends the reading before the
        // first is decoded.
        for then in ["x,1\n", "6,\n\""] {
            let text = format!("1,2\n3,4\n5,1e99\n7,8\n{then}").into_bytes();
            let ran = run(batch, &TestInput::new(2), None, || {
                [memory("a", [text.clone()]), missing()]
            });
            assert_eq!(ran.text, "3,1\n7,3\n");
            assert_eq!(
                ran.result,
                Err("a:3:2: expected a number that fits f32, found \"1e99\"".into())
            );
        }
        let nan = [1.0, 2.0, f32::NAN, f32::INFINITY]
            .map(f32::to_le_bytes)
            .concat();
        let ran = run(batch, &TestInput::new(1), Some(Format::F32), || {
            [memory("a", [nan.clone()])]
        });
        assert_eq!(ran.text, "1,1\n2,2\n");
        assert_eq!(
            ran.result,
            Err("a: record 3, value 1: expected a finite number, found NaN".into())
        );
    }
}

/// Records of inputs in different formats share a batch. Each is decoded by the format of its
/// input, and an error names its place in its input.
#[test]
fn files_of_different_formats_share_batches() {
    for batch in [1, 2, 3, 5, 100] {
        let files = |last: &'static [u8]| {
            [
                memory("a.csv", [b"1,2\n3,4\n".to_vec()]),
                memory("b.idx", [idx(8, &[3, 2], &[5, 6, 7, 8, 9, 10])]),
                memory(
                    "c.npy",
                    [npy(
                        "<f4",
                        "(1, 2)",
                        &[1.5f32, 2.0].map(f32::to_le_bytes).concat(),
                    )],
                ),
                memory("d.csv", [last.to_vec()]),
            ]
        };
        let answers = "3,1\n7,3\n11,5\n15,7\n19,9\n3.5,1.5\n";
        let ran = run(batch, &TestInput::new(2), None, || files(b"a,b\n1,1\n"));
        assert_eq!(ran.text, format!("{answers}2,1\n"));
        let ran = run(batch, &TestInput::new(2), None, || {
            files(b"a,b\n\n1\n2,2\n")
        });
        assert_eq!(ran.text, answers);
        assert_eq!(
            ran.result,
            Err("d.csv:3:2: expected 2 numbers, the line has 1".into())
        );
    }
}

/// Gives the number of records of each submitted batch.
trait Batches {
    fn batches(&self) -> Vec<usize>;
}

impl Batches for MockEngine {
    fn batches(&self) -> Vec<usize> {
        self.submitted.clone()
    }
}

impl Batches for NanEngine {
    fn batches(&self) -> Vec<usize> {
        self.mock.batches()
    }
}

/// A mock engine whose third record has a NaN score.
struct NanEngine {
    mock: MockEngine,
    answered: std::cell::Cell<usize>,
}

impl Engine for NanEngine {
    fn batch(&self) -> usize {
        self.mock.batch()
    }

    fn record(&mut self, slot: usize, index: usize) -> Result<RecordMut<'_>, Error> {
        self.mock.record(slot, index)
    }

    fn submit(&mut self, slot: usize, records: usize) -> Result<(), Error> {
        self.mock.submit(slot, records)
    }

    fn collect(&mut self, slot: usize) -> Result<(), Error> {
        self.mock.collect(slot)
    }

    fn answer(&self, slot: usize, index: usize) -> Answer<'_> {
        self.answered.set(self.answered.get() + 1);
        let answer = self.mock.answer(slot, index);
        let nan = Record::new(&[f32::NAN], &[0], 0);
        if self.answered.get() == 3 {
            Answer {
                scores: nan,
                ..answer
            }
        } else {
            answer
        }
    }
}

#[test]
fn a_nan_score_names_the_record_in_the_input() {
    for (batch, format, place) in [
        (1, None, "b:2"),
        (2, None, "b:2"),
        (9, None, "b:2"),
        (9, Some(Format::U8), "b: record 1"),
    ] {
        let mut engine = NanEngine {
            mock: MockEngine::new(batch, 1),
            answered: Default::default(),
        };
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, AnswerFormat::Scores, VALUES);
        let input = TestInput::new(1);
        let stream = Stream {
            format,
            ..Stream::new(input.shape(), &mut writer)
        };
        let files = match format {
            None => [
                memory("a", [b"1\n2\n".to_vec()]),
                memory("b", [b"\n3\nx\n".to_vec()]),
            ],
            Some(_) => [memory("a", [vec![1, 2]]), memory("b", [vec![3, 4]])],
        };
        let error = stream
            .run(&mut engine, files.into_iter())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!(
                "{place}: record 3 of the run: overflow in f32: expected finite scores, "
            )),
            "{error}"
        );
        assert_eq!(out, b"1,1\n2,2\n");
    }
}

fn marked(batch: usize, width: usize, format: Option<Format>, files: &[(&str, &[u8])]) -> Ran {
    let sources = || {
        files
            .iter()
            .map(|(place, bytes)| memory(place, [bytes.to_vec()]))
    };
    run_with(
        true,
        AnswerFormat::Scores,
        batch,
        &TestInput::new(width),
        format,
        sources,
    )
}

fn summary(records: u64, marked: u64, ran: &Ran) -> Result<Summary, String> {
    Ok(Summary {
        records,
        batches: ran.batches.len() as u64,
        marked,
    })
}

#[test]
fn marked_records_are_skipped_wherever_they_stand() {
    for batch in [1, 2, 3, 4, 7, 100] {
        // The text has every mistake that a line can have. The blank line is no record.
        let text = b"1,2\nx,1\n3\n3,4,5\n\n3,4\nnan,1\n1,1e39\n1;2\n5,6\n\0\xff,1\n7,8\n9";
        let ran = marked(batch, 2, None, &[("a", text), ("b", b"1,1\n,\n2,2\n")]);
        let e = "error\n";
        assert_eq!(
            ran.text,
            format!("3,1\n{e}{e}{e}7,3\n{e}{e}{e}11,5\n{e}15,7\n{e}2,1\n{e}4,2\n")
        );
        assert_eq!(ran.result, summary(15, 9, &ran));
        assert_eq!(ran.reasons.len(), 9);
        assert_eq!(ran.reasons[1], "a:3:2: expected 2 numbers, the line has 1");
        assert_eq!(
            ran.reasons[7..],
            [
                "a:13:2: expected 2 numbers, the line has 1",
                "b:2:1: expected a number, found \"\""
            ]
        );
        // Bad records do not end a batch, so all batches but the last are full.
        assert_eq!(ran.batches.len(), 15usize.div_ceil(batch));
        // This input has only bad records.
        let ran = marked(batch, 1, None, &[("a", b"1x\n".repeat(20).as_slice())]);
        assert_eq!((ran.text, ran.result.unwrap().marked), (e.repeat(20), 20));
        let nan = [1.0, f32::NAN, 2.0, f32::INFINITY, f32::NEG_INFINITY, 3.0]
            .map(f32::to_le_bytes)
            .concat();
        for (format, file) in [
            (Some(Format::F32), nan.clone()),
            (None, npy("<f4", "(6, 1)", &nan)),
        ] {
            let ran = marked(batch, 1, format, &[("a", &file), ("b", &file)]);
            assert_eq!(ran.text, format!("1,1\n{e}2,2\n{e}{e}3,3\n").repeat(2));
            assert_eq!(ran.result, summary(12, 6, &ran));
        }
    }
}

#[test]
fn what_cannot_be_skipped_ends_the_run_behind_the_marked_records() {
    for batch in [1, 2, 3, 100] {
        let floats = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let half = [floats(&[1.0, f32::NAN, 2.0]), vec![0, 0]].concat();
        let ran = marked(batch, 1, Some(Format::F32), &[("a", &half)]);
        assert_eq!(ran.text, "1,1\nerror\n2,2\n");
        assert_eq!(
            ran.result,
            Err("a: record 4: expected 4 bytes, the input ends after 2".into())
        );
        let more = npy("<f4", "(1, 1)", &floats(&[f32::NAN, 2.0]));
        let ran = marked(batch, 1, None, &[("a", &more)]);
        assert_eq!(ran.text, "error\n");
        assert_eq!(
            ran.result,
            Err("a: expected the end after 1 record, found more bytes".into())
        );
        let ran = marked(batch, 1, None, &[("a", b"1\nx\n"), ("b", b"\x1f\x8b\x08")]);
        assert_eq!(ran.text, "1,1\nerror\n");
        assert!(
            ran.result
                .unwrap_err()
                .starts_with("b: this looks like gzip")
        );
    }
}

/// A first line of words is a header if their count fits. Otherwise it is a bad record.
#[test]
fn a_header_that_does_not_fit() {
    let named = || TestInput {
        features: ["a", "b"].map(Cow::from).to_vec(),
        ..TestInput::new(2)
    };
    let run = |input: &TestInput, text: &'static [u8]| {
        run_with(true, AnswerFormat::Scores, 3, input, None, || {
            [memory("in", [text.to_vec()])]
        })
    };
    for input in [TestInput::new(2), named()] {
        for text in [b"sensor restarted\n1,2\n".as_slice(), b"a,b,c\n1,2\n"] {
            let ran = run(&input, text);
            assert_eq!(
                (&*ran.text, &ran.result),
                ("error\n3,1\n", &summary(2, 1, &ran))
            );
        }
        assert_eq!(run(&input, b"a,b\n1,2\n").text, "3,1\n");
    }
    let ran = run(&named(), b"b,a\n1,2\n");
    assert_eq!(ran.text, "");
    let error = ran.result.unwrap_err();
    assert!(
        error.starts_with("in:1:1: expected the feature \"a\", found \"b\" (the header has all "),
        "{error}"
    );
}

/// A line that is longer than the buffer is marked once, and the next line is a record.
#[test]
fn a_line_that_is_too_long_is_skipped() {
    let capacity = 1 << 20;
    for length in [capacity, 3 * capacity + 17] {
        let long = vec![b'7'; length];
        for (text, expected) in [
            (
                [b"1\n", &*long, b"\n3\nx\n"].concat(),
                "1,1\nerror\n3,3\nerror\n",
            ),
            ([b"1\n", &*long].concat(), "1,1\nerror\n"),
            ([&*long, b"\nword\n2\n"].concat(), "error\nerror\n2,2\n"),
        ] {
            let ran = marked(2, 1, None, &[("a", &text)]);
            assert_eq!(ran.text, expected);
            let too_long = |r: &&String| r.contains("expected a line of at most 1048575 bytes");
            assert_eq!(ran.reasons.iter().filter(too_long).count(), 1);
            let lines = expected.lines().count() as u64;
            assert_eq!(
                ran.result,
                summary(lines, expected.matches("error").count() as u64, &ran)
            );
        }
    }
}

#[test]
fn json_has_the_reason() {
    let text = b"1\n\"a\\\n3\n";
    let ran = run_with(
        true,
        AnswerFormat::Json,
        2,
        &TestInput::new(1),
        None,
        || [memory("in\"", [text.to_vec()])],
    );
    let lines: Vec<serde_json::Value> = ran
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let why = "in\":2:1: expected a number, found \"\\\"a\\\\\"";
    assert_eq!(lines[1], serde_json::json!({"record": 1, "error": why}));
    assert_eq!(
        (&lines[0]["record"], &lines[2]["record"]),
        (&0.into(), &2.into())
    );
    assert!(lines[2].get("error").is_none() && lines[2]["scores"][0] == 3);
}

#[test]
fn a_nan_score_is_marked_and_the_records_behind_it_are_answered() {
    for batch in [1, 2, 3, 9] {
        let engine = NanEngine {
            mock: MockEngine::new(batch, 1),
            answered: Default::default(),
        };
        let files = [
            memory("a", [b"1\n2\n".to_vec()]),
            memory("b", [b"\n3\nx\n5\n".to_vec()]),
        ];
        let ran = run_on(
            engine,
            true,
            AnswerFormat::Scores,
            &TestInput::new(1),
            None,
            files,
        );
        assert_eq!(ran.text, "1,1\n2,2\nerror\nerror\n5,5\n");
        assert_eq!(ran.result, summary(5, 2, &ran));
        assert!(
            ran.reasons[0].starts_with(
                "b:2: record 3 of the run: overflow in f32: expected finite scores, found a score \
                 of NaN"
            ),
            "{:?}",
            ran.reasons
        );
        assert_eq!(ran.reasons[1], "b:3:1: expected a number, found \"x\"");
    }
}

proptest! {
    #[test]
    fn marked_records_keep_their_places(
        records in proptest::collection::vec((any::<u8>(), 0u8..8), 0..60),
        batch in 1usize..8,
        cuts in proptest::collection::vec((1u8..30, any::<bool>()), 1..8),
    ) {
        let (mut text, mut expected) = (String::new(), String::new());
        for (value, kind) in &records {
            let bad = ["", "1", "x,1", "1,2,3", "1,inf"].get(usize::from(*kind));
            let bad = bad.filter(|line| !line.is_empty());
            let sum = u32::from(*value) + 1;
            text += &bad.map_or(format!("{value},1\n"), |line| format!("{line}\n"));
            expected += &bad.map_or(format!("{sum},{value}\n"), |_| "error\n".into());
        }
        let source = || [memory("in", cut(text.as_bytes(), &cuts))];
        let ran = run_with(true, AnswerFormat::Scores, batch, &TestInput::new(2), None, source);
        prop_assert_eq!(&ran.text, &expected);
        let bad = expected.matches("error").count() as u64;
        prop_assert_eq!(ran.result.clone(), summary(records.len() as u64, bad, &ran));
    }
}

/// A source that sends its next request only after the answer to the previous one.
struct Dialogue {
    /// The bytes of all answers written so far.
    answers: Rc<RefCell<Vec<u8>>>,
    requests: Vec<&'static str>,
    /// The number of requests sent.
    sent: usize,
    /// The number of complete records in the requests sent.
    records: usize,
}

impl Source for Dialogue {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let answered = self
            .answers
            .borrow()
            .iter()
            .filter(|&&b| b == b'\n')
            .count();
        assert_eq!(
            answered, self.records,
            "all complete records are answered before the stream waits"
        );
        let Some(request) = self.requests.get(self.sent) else {
            return Ok(0);
        };
        self.sent += 1;
        self.records += request.matches('\n').count();
        buf[..request.len()].copy_from_slice(request.as_bytes());
        Ok(request.len())
    }

    fn ready(&self) -> bool {
        false
    }
}

/// An output that writes into a vector, which the test can read at any time.
struct SharedSink {
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl io::Write for SharedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_record_is_answered_before_more_input_is_awaited() {
    for batch in [1, 2, 8] {
        let answers = Rc::new(RefCell::new(Vec::new()));
        let requests = vec!["1\n", "2\n3\n4\n5\n6\n", "7", "\n8", "\n"];
        let source = Dialogue {
            answers: answers.clone(),
            requests,
            sent: 0,
            records: 0,
        };
        let mut engine = MockEngine::new(batch, 1);
        let sink = SharedSink {
            bytes: answers.clone(),
        };
        let mut writer = ResultWriter::new(sink, AnswerFormat::Scores, VALUES);
        let input = TestInput::new(1);
        let mut times = StreamTimes::default();
        let stream = Stream {
            times: Some(&mut times),
            ..Stream::new(input.shape(), &mut writer)
        };
        let summary = stream
            .run(&mut engine, [Ok(("stdin".to_string(), source))].into_iter())
            .unwrap();
        assert_eq!(summary.records, 8);
        assert_eq!((times.records, times.batches), (8, summary.batches));
        assert!(times.latencies.percentile(50.0).is_some());
        assert_eq!(
            String::from_utf8(answers.borrow().clone())
                .unwrap()
                .lines()
                .count(),
            8
        );
    }
}

/// The key fields of each line stand in front of the line's answer, for every answer format and
/// both kinds of engine.
#[test]
fn keys_stand_in_front_of_answers() {
    let mut input = TestInput::new(2);
    input.keys = 2;
    let text = b"time,\"name, first\",a,b\n\
        10:00,\"a \"\"b\"\"\",1,2\n\
        \n\
        10:01, c ,3,x\n\
        10:02\n\
        ,,5,6\r\n\
        10:04,\xc3\xa4,7,8";
    let expected = [
        ("10:00,\"a \"\"b\"\"\",3,1", json!(["10:00", "a \"b\""])),
        ("10:01, c ,error", json!(["10:01", "c"])),
        (",,error", json!(["", ""])),
        (",,11,5", json!(["", ""])),
        ("10:04,ä,15,7", json!(["10:04", "ä"])),
    ];
    let said = [
        "a:4:4: expected a number, found \"x\"",
        "a:5:2: expected 2 key fields (--key 2) and 2 numbers, the line has 1 field",
    ];
    for (batch, output) in [1, 2, 7]
        .into_iter()
        .flat_map(|n| [(n, AnswerFormat::Scores), (n, AnswerFormat::Json)])
    {
        for pieces in [vec![text.to_vec()], text.iter().map(|&b| vec![b]).collect()] {
            let ran = run_with(true, output, batch, &input, None, || {
                [memory("a", pieces.clone())]
            });
            let lines: Vec<&str> = ran.text.lines().collect();
            assert_eq!(lines.len(), expected.len(), "{}", ran.text);
            for (line, (text, key)) in lines.into_iter().zip(&expected) {
                if output == AnswerFormat::Json {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!(line["key"], *key, "{line}");
                } else {
                    assert_eq!(line, *text);
                }
            }
            assert_eq!(ran.reasons, said);
        }
    }
}

/// The place of an error counts the key fields too. The counts of numbers in a message do not
/// include them.
#[test]
fn mistakes_behind_keys() {
    let mut input = TestInput::new(2);
    (input.keys, input.features) = (1, vec!["a".into(), "b".into()]);
    let cases = [
        (
            "t,1,2,3\n",
            "stdin:1:4: expected 2 numbers, found a 3rd: \"3\" (after 1 key field: --key 1)",
        ),
        (
            "t,1\n",
            "stdin:1:3: expected 2 numbers, the line has 1 (after 1 key field: --key 1)",
        ),
        (
            "t\n",
            "stdin:1:2: expected 1 key field (--key 1) and 2 numbers, the line has 1 field",
        ),
        (
            "t,a,c\n",
            "stdin:1:3: expected the feature \"b\", found \"c\"",
        ),
        (
            "t,a\n",
            "stdin:1:3: expected 2 names, the header has 1 (after 1 key field: --key 1)",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(read(None, &input, text.as_bytes()).unwrap_err(), message);
    }
    assert_eq!(read(None, &input, b"t,a,b\na,1,2").unwrap(), [[1.0, 2.0]]);
    let message =
        "stdin: --key needs lines of text: expected CSV, found a NumPy or idx file; omit --key";
    assert_eq!(
        read(None, &input, &idx(8, &[1, 2], &[1, 2])).unwrap_err(),
        message
    );
    // The key of a record of a time series is the key of the record's last row.
    let mut rows = series(1);
    rows.keys = 1;
    let text: String = (0..5)
        .map(|i| format!("t{i}{}\n", ",1".repeat(rows.width)))
        .collect();
    let ran = run(2, &rows, None, || {
        [memory("a", [text.clone().into_bytes()])]
    });
    let first: Vec<&str> = ran
        .text
        .lines()
        .map(|l| l.split(',').next().unwrap())
        .collect();
    let from = rows.rows.unwrap().window - 1;
    assert_eq!(
        first,
        (from..5).map(|i| format!("t{i}")).collect::<Vec<_>>()
    );
}

#[test]
fn classes_and_scores_are_compared_on_the_way() {
    let path = std::env::temp_dir().join(format!("mortonnet-stream-{}", std::process::id()));
    std::fs::write(&path, "0\n0\n1\n1\n").unwrap();
    let spec = OutputSpec {
        kind: Kind::Classes,
        ..VALUES
    };
    let mut expected = ExpectedClasses::read(&path, &spec).unwrap();
    std::fs::write(&path, "2,1\n0,1.5\n9,9\n0,1\n").unwrap();
    let mut scores = ExpectedScores::read(&path, 0.1, &spec).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (mut engine, mut out, input) = (MockEngine::new(2, 2), Vec::new(), TestInput::new(2));
    let mut ignore = |_: &Error| ();
    let mut writer = ResultWriter::new(&mut out, AnswerFormat::Class, spec);
    let stream = Stream {
        bad: Some(&mut ignore),
        expected: Some(&mut expected),
        expected_scores: Some(&mut scores),
        ..Stream::new(input.shape(), &mut writer)
    };
    // The scores are the sum and the first number of a record. So class 1 wins if the second number
    // is negative.
    stream
        .run(
            &mut engine,
            [memory("stdin", [b"1,1\n1,-1\n1\n1,-1\n".to_vec()])].into_iter(),
        )
        .unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "0\n1\nerror\n1\n");
    // A marked record counts as a wrong prediction.
    assert_eq!(expected.finish().unwrap().to_string(), "2 of 4");
    let scores = scores.finish().unwrap();
    assert!(!scores.complete());
    assert_eq!(
        scores.to_string(),
        "scores: 2 of 4 within 0.1; largest error 3.33e-1, record 2, output 2: expected 1.5, \
         found 1"
    );
}

/// Returns the records of a time series by definition: `window` rows, beginning every `hop` rows.
fn windows<T: Clone>(rows: &[Vec<T>], SeriesRows { window, hop }: SeriesRows) -> Vec<Vec<T>> {
    (0..)
        .map(|n| n * hop)
        .take_while(|from| from + window <= rows.len())
        .map(|from| rows[from..from + window].concat())
        .collect()
}

/// Returns the number of rows after the last record by definition. Skipped rows between two records
/// do not count.
fn rest(rows: usize, SeriesRows { window, hop }: SeriesRows) -> usize {
    let next = (0..)
        .map(|n| n * hop)
        .find(|from| from + window > rows)
        .unwrap();
    let end = if next >= hop { next - hop + window } else { 0 };
    rows.saturating_sub(next.max(end))
}

/// A time series with two numbers in a row and three rows in a record.
fn series(hop: usize) -> TestInput {
    TestInput {
        rows: Some(SeriesRows { window: 3, hop }),
        ..TestInput::new(2)
    }
}

const SERIES: &[u8] = b"a,b\n1,2\n3,4\n\n5,6\n7,8\n9,10\n11,12\n13,14\n";

#[test]
fn records_are_the_last_rows_of_a_series() {
    for (hop, expected, left) in [
        (1, "21,1\n33,3\n45,5\n57,7\n69,9\n", 0),
        (2, "21,1\n45,5\n69,9\n", 0),
        (3, "21,1\n57,7\n", 1),
        (4, "21,1\n69,9\n", 0),
        (5, "21,1\n", 2),
        (6, "21,1\n", 1),
        (7, "21,1\n", 0),
        (1000, "21,1\n", 0),
    ] {
        for batch in [1, 2, 3, 100] {
            let ran = run(batch, &series(hop), None, || {
                [memory("a", [SERIES.to_vec()])]
            });
            let records = expected.lines().count() as u64;
            assert_eq!(
                (&*ran.text, &ran.result),
                (expected, &summary(records, 0, &ran)),
                "{hop}"
            );
            let left = if left > 0 {
                vec![("a".to_string(), left)]
            } else {
                vec![]
            };
            assert_eq!(ran.left, left, "{hop}");
        }
    }
}

/// The scale of a column may differ from row to row of a record. The scale is applied to the f64
/// that was read, so no digits are lost.
#[test]
fn each_row_of_a_record_has_its_own_scale() {
    let mean = vec![101325.0, 20.0, 101326.0, 21.0, 101327.0, 22.0];
    let transform = Transform::MeanStd {
        mean: mean.into(),
        std: vec![1.0 / 3.0].into(),
    };
    let rows = TestInput {
        transform: transform.clone(),
        ..series(2)
    };
    let whole = TestInput {
        transform,
        ..TestInput::new(6)
    };
    let lines = [
        "101325.1234567,20.3",
        "101324.7654321,19.5",
        "101326.1,2e1",
        "101300,17",
        "101327.3,-4.25",
    ];
    let records = [lines[..3].join(","), lines[2..].join(",")].join("\n");
    let expected = read(None, &whole, records.as_bytes()).unwrap();
    assert_eq!(
        expected[0][0],
        ((101325.1234567 - 101325.0) / (1.0 / 3.0)) as f32
    );
    assert_eq!(read(None, &rows, lines.join("\n").as_bytes()), Ok(expected));
    let floats = |text: &str| {
        text.split([',', '\n'])
            .flat_map(|x| x.parse::<f64>().unwrap().to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let of_whole = read(None, &whole, &npy("<f8", "(2, 6)", &floats(&records)));
    assert_eq!(
        read(
            None,
            &rows,
            &npy("<f8", "(5, 2)", &floats(&lines.join("\n")))
        ),
        of_whole
    );
}

/// A record never contains rows of two inputs.
#[test]
fn a_series_ends_with_its_input() {
    for batch in [1, 2, 100] {
        let files = || {
            [
                memory("a", [b"1,1\n2,1\n3,1\n4,1\n".to_vec()]),
                memory("b", [b"9,1\n9,1\n".to_vec()]),
                memory("c", [b"".to_vec()]),
                memory("d", [npy("|u1", "(3, 2)", &[5, 1, 6, 1, 7, 1])]),
            ]
        };
        let ran = run(batch, &series(3), None, files);
        assert_eq!(
            (&*ran.text, &ran.result),
            ("9,1\n21,5\n", &summary(2, 0, &ran))
        );
        assert_eq!(ran.left, [("a".to_string(), 1), ("b".to_string(), 2)]);
    }
}

#[test]
fn mistakes_of_a_series_name_its_rows() {
    let floats = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let error = |format, bytes: &[u8]| read(format, &series(1), bytes).unwrap_err();
    let window = " (--window 3: a record of 6 numbers is 3 rows of 2)";
    assert_eq!(
        error(None, b"1,2\n3,4,5\n"),
        format!("stdin:2:3: expected 2 numbers, found a 3rd: \"5\"{window}")
    );
    assert_eq!(
        error(None, b"1,2,3,4,5,6\n"),
        format!("stdin:1:3: expected 2 numbers, found a 3rd: \"3\"{window}")
    );
    assert_eq!(
        error(None, b"1,2\n3\n"),
        format!("stdin:2:2: expected 2 numbers, the line has 1{window}")
    );
    assert_eq!(
        error(None, b"a,b,c\n1,2\n"),
        format!("stdin:1:3: expected 2 names, the header has a 3rd: \"c\"{window}")
    );
    assert_eq!(
        error(None, b"1,2\n\n3,x\n"),
        "stdin:3:2: expected a number, found \"x\""
    );
    let (u8s, f32s) = (Some(Format::U8), Some(Format::F32));
    assert_eq!(
        error(u8s, &[0; 7]),
        "stdin: row 4: expected 2 bytes, the input ends after 1"
    );
    let nan = floats(&[1.0, 2.0, 3.0, f32::NAN]);
    assert_eq!(
        error(f32s, &nan),
        "stdin: row 2, value 2: expected a finite number, found NaN"
    );
    assert_eq!(
        error(None, &npy("|u1", "(2, 3)", &[0; 6])),
        format!("stdin: expected an array of shape (N, 2), found (2, 3){window}")
    );
    assert_eq!(
        error(None, &npy("|u1", "(1, 2)", &[0; 3])),
        "stdin: expected the end after 1 row, found more bytes"
    );
    let short = npy("|u1", "(3, 2)", &[0; 4]);
    assert_eq!(
        error(None, &short),
        "stdin: row 3: expected 3 rows, the input ends after 2"
    );
    // This number fits f32 in all rows of a record but one, whose scale makes it too large.
    let scale: Vec<f64> = (0..6).map(|i| if i == 3 { 1e30 } else { 1.0 }).collect();
    let transform = Transform::ScaleOffset {
        scale: scale.into(),
        offset: vec![0.0].into(),
    };
    let input = TestInput {
        transform,
        ..series(1)
    };
    let large = "expected a number that fits f32 after the input scaling, found";
    assert_eq!(
        read(None, &input, b"1,1e20\n3,4\n1,1\n\n1,1\n")
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        read(None, &input, b"1,1\n2,2\n1,1e20\n\n1,1\n1,1\n").unwrap_err(),
        format!("stdin:3:2: {large} 1e20")
    );
    assert_eq!(
        read(None, &input, b"1,1\n2,1e400\n").unwrap_err(),
        "stdin:2:2: expected a finite number, found \"1e400\""
    );
    assert_eq!(
        read(f32s, &input, &floats(&[0.0, f32::INFINITY])).unwrap_err(),
        "stdin: row 1, value 2: expected a finite number, found inf"
    );
    // The number of rows in a window must divide the count of numbers of a record.
    let shape = |window| {
        TestInput::new(64)
            .shape()
            .of_rows(SeriesRows { window, hop: 1 })
            .map(|s| s.width)
    };
    assert_eq!((shape(1), shape(16), shape(64)), (Ok(64), Ok(4), Ok(1)));
    for window in [7, 65, 1000] {
        let e = shape(window).unwrap_err();
        assert!(
            e.starts_with(&format!("--window {window}: expected a divisor of 64, ")),
            "{e}"
        );
    }
}

/// Every record that contains a bad row is bad for the row's reason. A bad row that no record
/// contains is ignored.
#[test]
fn a_bad_row_marks_the_records_that_have_it() {
    for (hop, expected, reasons) in [
        (
            1,
            "21,1\nerror\nerror\nerror\n69,9\n",
            &["a:6", "a:6", "a:6"][..],
        ),
        (2, "21,1\nerror\n69,9\n", &["a:6"]),
        (3, "21,1\nerror\n", &["a:6"]),
        (4, "21,1\n69,9\n", &[]),
    ] {
        for (bad, why) in [
            ("7", ":2: expected 2 numbers, the line has 1"),
            ("7,x", ":2: expected a number, found \"x\""),
        ] {
            let text = String::from_utf8_lossy(SERIES).replace("7,8", bad);
            for batch in [1, 2, 100] {
                let source = || [memory("a", [text.clone().into_bytes()])];
                let ran = run_with(
                    true,
                    AnswerFormat::Scores,
                    batch,
                    &series(hop),
                    None,
                    source,
                );
                assert_eq!(ran.text, expected, "{hop}");
                let found: Vec<&str> = ran
                    .reasons
                    .iter()
                    .map(|r| r.split(why).next().unwrap())
                    .collect();
                let window = " (--window 3: a record of 6 numbers is 3 rows of 2)";
                assert!(
                    ran.reasons
                        .iter()
                        .all(|r| r.trim_end_matches(window).ends_with(why)),
                    "{:?}",
                    ran.reasons
                );
                assert_eq!(found, reasons, "{hop}");
                let ran = run_with(
                    false,
                    AnswerFormat::Scores,
                    batch,
                    &series(hop),
                    None,
                    source,
                );
                assert_eq!(ran.result.is_err(), !reasons.is_empty(), "{hop}");
                assert_eq!(ran.text, expected.split("error").next().unwrap(), "{hop}");
            }
        }
    }
}

proptest! {
    /// A time series gives the same answers as an input that has the series' windows as whole
    /// records.
    #[test]
    fn windows_are_those_of_the_definition(
        (width, window, hop) in (1usize..4, 1usize..7, 1usize..9),
        counts in proptest::collection::vec(0usize..40, 1..3),
        batch in 1usize..8,
        format in proptest::sample::select(&ALL_FORMATS),
        scaled in any::<bool>(),
        bad in proptest::collection::vec(0usize..40, 0..4),
        cuts in proptest::collection::vec((1u8..30, any::<bool>()), 1..8),
        seed in any::<u8>(),
    ) {
        let shape = SeriesRows { window, hop };
        let mut value = seed;
        let mut next = || {
            value = value.wrapping_mul(5).wrapping_add(113);
            value
        };
        let mut input = TestInput { rows: Some(shape), ..TestInput::new(width) };
        if scaled {
            let factors: Vec<f64> = (0..width * window).map(|i| (i + 1) as f64 / 4.0).collect();
            let (scale, offset) = (factors.into(), vec![0.25].into());
            input.transform = Transform::ScaleOffset { scale, offset };
        }
        let transform = input.transform.clone();
        let whole = TestInput { transform, ..TestInput::new(width * window) };
        let (mut series, mut records, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for (file, &n) in counts.iter().enumerate() {
            let rows: Vec<Vec<u8>> = (0..n).map(|_| (0..width).map(|_| next()).collect()).collect();
            let cut_out = windows(&rows, shape);
            // Read as a series or as records, the windows give the same numbers in the same order.
            let (bytes, of_records) =
                (encode(format, &rows, width), encode(format, &cut_out, width * window));
            let expected = read(Some(format), &whole, &of_records);
            prop_assert_eq!(read_pieces(Some(format), &input, cut(&bytes, &cuts)), expected);
            // In the text format some rows are bad.
            let text = |rows: &[Vec<String>]| {
                rows.iter().map(|r| r.join(",") + "\n").collect::<String>().into_bytes()
            };
            let marked = format == Format::Csv;
            let words = |(n, row): (usize, &Vec<u8>)| {
                let word = |v: &u8| if bad.contains(&n) { "x".into() } else { v.to_string() };
                row.iter().map(word).collect()
            };
            let lines: Vec<Vec<String>> = rows.iter().enumerate().map(words).collect();
            // Without a header, a first line of words would be taken for a header.
            let with_header = |width: usize, lines: &[Vec<String>]| {
                [(vec!["h"; width].join(",") + "\n").into_bytes(), text(lines)].concat()
            };
            series.push(if marked { with_header(width, &lines) } else { bytes });
            let cut_out = windows(&lines, shape);
            records.push(if marked { with_header(width * window, &cut_out) } else { of_records });
            let rows = rest(n, shape);
            left.extend((rows > 0).then(|| (format!("file {file}"), rows)));
        }
        let files = |files: &[Vec<u8>], cuts: &[(u8, bool)]| {
            let pieces = files.iter().map(|bytes| cut(bytes, cuts)).enumerate();
            pieces.map(|(i, p)| memory(&format!("file {i}"), p)).collect::<Vec<_>>()
        };
        let format = Some(format);
        let run = |input, files: &dyn Fn() -> _| {
            run_with(true, AnswerFormat::Scores, batch, input, format, files)
        };
        let ran = run(&input, &|| files(&series, &cuts));
        let naive = run(&whole, &|| files(&records, &[(29, false)]));
        prop_assert_eq!(&ran.text, &naive.text);
        let count = |ran: &Ran| ran.result.clone().map(|s| (s.records, s.marked));
        prop_assert_eq!(count(&ran), count(&naive));
        prop_assert_eq!(ran.left, left);
    }
}
