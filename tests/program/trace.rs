//! `--profile=trace`: its format, the events on each track, and its agreement with
//! `--profile=json`.

use super::multi::two;
use super::support::{
    DIGITS, Folder, ICD_LOADER, Run, Witness, command, feed, on, root, run, shim,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

fn csv() -> String {
    fs::read_to_string(root().join("model/digits/test.csv")).unwrap()
}

/// A span with times in nanoseconds.
struct Span {
    name: String,
    start: u64,
    end: u64,
    args: Value,
}

impl Span {
    fn number(&self, key: &str) -> u64 {
        self.args[key].as_u64().unwrap_or(0)
    }

    fn batch(&self) -> u64 {
        self.number("batch")
    }

    fn is_step(&self) -> bool {
        self.args["layer"].is_u64()
    }
}

/// A well-formed trace: the spans by process and thread.
struct Trace {
    tracks: BTreeMap<(String, String), Vec<Span>>,
    dropped: u64,
    sums: Value,
}

/// Converts microseconds with three decimals to nanoseconds.
fn ns(us: &Value) -> u64 {
    let us = us.as_f64().unwrap_or_else(|| panic!("no time: {us}"));
    assert!(us >= 0.0);
    (us * 1e3).round() as u64
}

impl Trace {
    /// Checks the format. Spans must lie within the run, and must be nested or disjoint.
    fn parse(text: &str) -> Trace {
        let trace: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let (mut processes, mut threads, mut places) = (HashMap::new(), HashMap::new(), 0);
        let mut tracks: BTreeMap<(String, String), Vec<Span>> = BTreeMap::new();
        let dropped = trace["dropped"].as_u64().unwrap();
        let sums = trace["otherData"].clone();
        let elapsed = ns(&sums["elapsed_us"]);
        for event in trace["traceEvents"].as_array().unwrap() {
            let (pid, tid) = (
                event["pid"].as_u64().unwrap(),
                event["tid"].as_u64().unwrap(),
            );
            let (name, start) = (
                event["name"].as_str().unwrap().to_string(),
                ns(&event["ts"]),
            );
            let (args, text) = (
                &event["args"],
                event["args"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_string(),
            );
            assert!(args.is_object(), "{event}");
            match (event["ph"].as_str().unwrap(), &*name) {
                ("M", "process_name") => assert_eq!(processes.insert(pid, text), None, "{event}"),
                // Perfetto needs thread ids that are unique across processes.
                ("M", "thread_name") => {
                    assert!(threads.insert(tid, (pid, text)).is_none(), "{event}")
                }
                ("M", "process_sort_index" | "thread_sort_index") => {
                    assert!(args["sort_index"].is_u64(), "{event}");
                    places += 1;
                }
                ("X", _) => {
                    let end = start + ns(&event["dur"]);
                    assert!(end <= elapsed, "{event} ends after {elapsed} ns");
                    assert_eq!(threads[&tid].0, pid, "{event}");
                    let track = (processes[&pid].clone(), threads[&tid].1.clone());
                    tracks.entry(track).or_default().push(Span {
                        name,
                        start,
                        end,
                        args: args.clone(),
                    });
                }
                ("i", "the trace is full") => {
                    assert_eq!(
                        (args["dropped"].as_u64(), event["s"].as_str()),
                        (Some(dropped), Some("g"))
                    );
                }
                _ => panic!("{event}"),
            }
        }
        assert_eq!(places, processes.len() + threads.len());
        for ((process, thread), spans) in &tracks {
            let mut open: Vec<u64> = Vec::new();
            let (mut last, mut free) = (0, 0);
            for span in spans {
                assert!(
                    span.start >= last,
                    "{thread}: {} begins before the one before",
                    span.name
                );
                last = span.start;
                open.retain(|&end| {
                    end > span.start || (end == span.start && span.end == span.start)
                });
                let parent = open.last().copied().unwrap_or(u64::MAX);
                assert!(
                    span.end <= parent,
                    "{process} {thread}: {} at {} outlives its parent",
                    span.name,
                    last
                );
                assert!(
                    thread != "queue" || span.start >= free,
                    "{thread}: two commands at once"
                );
                free = span.end;
                open.push(span.end);
            }
        }
        Trace {
            tracks,
            dropped,
            sums,
        }
    }

    fn of(file: &Path) -> Trace {
        Trace::parse(&fs::read_to_string(file).unwrap())
    }

    /// Returns the spans on tracks whose process and thread names begin with these prefixes.
    fn on<'a>(&'a self, process: &'a str, thread: &'a str) -> impl Iterator<Item = &'a Span> {
        let fits = move |t: &(String, String)| t.0.starts_with(process) && t.1.starts_with(thread);
        self.tracks
            .iter()
            .filter(move |(track, _)| fits(track))
            .flat_map(|(_, spans)| spans)
    }

    /// Returns the only span of this name for a batch on the main thread.
    fn main(&self, name: &str, batch: u64) -> &Span {
        let mut found = self
            .on("mortonnet", "main thread")
            .filter(|s| s.name == name && s.batch() == batch && !s.is_step());
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no {name} of batch {batch}"));
        assert!(found.next().is_none(), "{name} of batch {batch} twice");
        span
    }

    /// Checks the order of the stream's spans for each batch. `records` has the batch sizes.
    fn stream(&self, records: &[u64]) {
        for (batch, &records) in (1..).zip(records) {
            let mut last = 0;
            for name in ["parse", "submit", "wait for the engine", "write"] {
                let span = self.main(name, batch);
                assert!(
                    span.start >= last && span.number("records") == records,
                    "{name} of batch {batch}"
                );
                last = span.end;
            }
        }
        let most = self.on("mortonnet", "main thread").map(Span::batch).max();
        assert_eq!(most, Some(records.len() as u64));
    }

    /// Returns the steps of the stream on some tracks, with their count and total time.
    fn steps<'a>(
        &'a self,
        process: &'a str,
        thread: &'a str,
    ) -> BTreeMap<(u64, &'a str), (u64, u64)> {
        let mut steps = BTreeMap::new();
        for span in self
            .on(process, thread)
            .filter(|s| s.is_step() && s.batch() > 0)
        {
            let (count, time) = steps
                .entry((span.number("layer"), &*span.name))
                .or_default();
            (*count, *time) = (*count + 1, *time + span.end - span.start);
        }
        steps
    }
}

/// Returns the steps of a JSON profile, for one of several devices or the only one.
fn sums(profile: &Value, member: Option<u64>) -> BTreeMap<(u64, &str), (u64, u64)> {
    let steps = profile["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["member"].as_u64() == member);
    steps
        .filter(|s| s["run_us"]["total"].as_f64() > Some(0.0))
        .map(|s| {
            let (layer, kernel) = (s["layer"].as_u64().unwrap(), s["kernel"].as_str().unwrap());
            (
                (layer, kernel),
                (
                    s["run_us"]["count"].as_u64().unwrap() + 1,
                    ns(&s["run_us"]["total"]),
                ),
            )
        })
        .collect()
}

/// Checks that the steps and their counts are equal. The times are equal if `exact`. Otherwise they
/// come from a driver, and overlapping parts were cut.
fn agree(
    found: &BTreeMap<(u64, &str), (u64, u64)>,
    expected: &BTreeMap<(u64, &str), (u64, u64)>,
    exact: bool,
) {
    assert!(!found.is_empty());
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (step, (count, time)) in found {
        let (calls, total) = expected[step];
        assert_eq!(*count, calls, "{step:?}");
        let slack = if exact { 1 } else { 20_000 + total / 10 };
        assert!(
            time.abs_diff(total) <= slack,
            "{step:?}: {time} ns, the sums have {total}"
        );
    }
}

/// Runs the program with a trace and with a JSON profile, and checks that it prints nothing else.
fn traced(
    prepare: impl Fn(&Path) -> std::process::Command,
    folder: &Folder,
    input: &str,
) -> (Trace, Value) {
    let mut texts = Vec::new();
    for format in ["trace", "json"] {
        let file = folder.path(format);
        let r: Run = feed(
            prepare(&file).arg(format!("--profile={format}:{}", file.display())),
            input,
        );
        assert_eq!((r.code, &*r.err), (Some(0), ""));
        texts.push(fs::read_to_string(file).unwrap());
    }
    (
        Trace::parse(&texts[0]),
        serde_json::from_str(&texts[1]).unwrap(),
    )
}

#[test]
fn the_host_engine() {
    let folder = Folder::new();
    let (trace, json) = traced(
        |_| {
            let mut c = command(DIGITS);
            c.args(["-b", "100", "model/digits/test.csv"]);
            c
        },
        &folder,
        "",
    );
    assert_eq!(trace.dropped, 0);
    trace.stream(&[100, 100, 100, 100, 100, 97]);
    // Any thread may have done the steps. The sums are of the same run, the profile is of another
    // run.
    agree(&trace.steps("", ""), &sums(&trace.sums, None), true);
    let (found, expected) = (trace.steps("", ""), sums(&json, None));
    assert_eq!(
        found.iter().map(|(k, v)| (k, v.0)).collect::<Vec<_>>(),
        expected.iter().map(|(k, v)| (k, v.0)).collect::<Vec<_>>()
    );
    let decoded: u64 = trace
        .on("", "")
        .filter(|s| s.name == "decode")
        .map(|s| s.number("records"))
        .sum();
    assert_eq!(decoded, 597);
    // Start-up is the parent of all its phases.
    let main: Vec<&Span> = trace.on("mortonnet", "main thread").collect();
    assert_eq!((&*main[0].name, main[0].start), ("start-up", 0));
    assert_eq!(main[0].end, ns(&trace.sums["startup_us"]));
    for (phase, time) in trace.sums["startup_phases_us"].as_object().unwrap() {
        let spans = main
            .iter()
            .filter(|s| s.name == *phase && s.end <= main[0].end);
        assert!(
            spans
                .map(|s| s.end - s.start)
                .sum::<u64>()
                .abs_diff(ns(time))
                <= 1,
            "{phase}"
        );
    }
    let reads = main
        .iter()
        .filter(|s| s.name == "read")
        .map(|s| s.end - s.start)
        .sum::<u64>();
    assert!(reads.abs_diff(ns(&trace.sums["read_us"])) <= 1);
}

/// Threads of the host engine have their own tracks, in the engine's group.
#[test]
fn the_threads_of_the_host_engine() {
    let folder = Folder::new();
    let file = folder.path("trace");
    let arg = format!("--profile=trace:{}", file.display());
    // Batches that are large enough to wake threads.
    let r = run(
        DIGITS,
        &["-d", "host", "-b", "4096", &arg],
        csv().repeat(100),
    );
    assert_eq!(r.lines().len(), 59_700);
    let trace = Trace::of(&file);
    agree(&trace.steps("", ""), &sums(&trace.sums, None), true);
    let cores = std::thread::available_parallelism().unwrap().get();
    let threads = trace
        .tracks
        .keys()
        .filter(|(process, _)| process.starts_with("host, "))
        .count();
    assert!(
        threads < cores && (cores == 1 || threads > 0),
        "{threads} threads on {cores} cores"
    );
    // The main thread's work for the engine is inside its wait.
    let (parse, wait) = (trace.main("parse", 2), trace.main("wait for the engine", 2));
    let own = trace
        .on("mortonnet", "main thread")
        .filter(|s| s.is_step() && s.batch() == 2);
    own.for_each(|s| assert!(s.start >= parse.end && s.end <= wait.end, "{}", s.name));
}

#[test]
fn an_opencl_device() {
    let folder = Folder::new();
    for (plan, steps) in [("thesis-morton", 5), ("mali-midgard", 1)] {
        let (trace, json) = traced(
            |_| {
                let mut c = command(DIGITS);
                on(Witness::Pocl, &mut c, &folder.path("log"));
                c.args([
                    "-d",
                    "opencl",
                    "--plan",
                    plan,
                    "-b",
                    "100",
                    "model/digits/test.csv",
                ]);
                c
            },
            &folder,
            "",
        );
        let records = [100, 100, 100, 100, 100, 97];
        trace.stream(&records);
        let found = trace.steps("opencl 0: ", "queue");
        assert!(found.len() >= steps, "{found:?}");
        agree(&found, &sums(&trace.sums, None), false);
        let counts = |steps: &BTreeMap<(u64, &str), (u64, u64)>| {
            steps
                .iter()
                .map(|((layer, kernel), (count, _))| (*layer, kernel.to_string(), *count))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(&found), counts(&sums(&json, None)));
        // On the host's clock, the device's commands of a batch lie between its submission and the
        // end of its wait.
        for span in trace.on("opencl 0: ", "queue").filter(|s| s.batch() > 0) {
            let (submit, wait) = (
                trace.main("submit", span.batch()),
                trace.main("wait for the engine", span.batch()),
            );
            assert!(
                span.start >= submit.start && span.end <= wait.end,
                "{} of batch {}: {} to {}, submitted at {}, there at {}",
                span.name,
                span.batch(),
                span.start,
                span.end,
                submit.start,
                wait.end
            );
            assert_eq!(span.number("records"), records[span.batch() as usize - 1]);
        }
        for name in ["read classes", "map input"] {
            assert_eq!(
                trace
                    .on("opencl 0: ", "queue")
                    .filter(|s| s.name == name)
                    .count(),
                6,
                "{name}"
            );
        }
        let clock = trace
            .on("opencl 0: ", "queue")
            .find(|s| s.name == "clock")
            .unwrap();
        let error = clock.args["error_us"].as_f64().unwrap();
        // PoCL reads the host's clock.
        assert!(error > 0.0 && error < 1000.0, "{error}");
        let phases: Vec<&str> = trace
            .on("mortonnet", "main thread")
            .map(|s| &*s.name)
            .collect();
        for name in [
            "library", "devices", "layout", "context", "build", "upload", "clock",
        ] {
            assert!(phases.contains(&name), "{name}");
        }
    }
}

/// The copies of a device with its own memory, a driver without the times of some commands, and
/// OpenCL 1.1.
#[test]
fn other_devices() {
    let folder = Folder::new();
    for (options, setting, plan, names) in [
        // The host computes the classes from the scores.
        (
            &[][..],
            ("MORTONNET_SHIM_DISCRETE", "1"),
            "thesis-morton",
            ["read scores", "write input"],
        ),
        (
            &[],
            ("MORTONNET_SHIM_FAIL", "clGetEventProfilingInfo:1:-7"),
            "mali-midgard",
            ["read classes", "map input"],
        ),
        (
            &["-DSHIM_ONLY_1_1"],
            ("MORTONNET_SHIM_DRIVER", "x"),
            "mali-midgard",
            ["read classes", "map input"],
        ),
    ] {
        let library = shim(&folder, options);
        let file = folder.path("trace");
        let mut c = command(DIGITS);
        on(Witness::Pocl, &mut c, &folder.path("log"));
        c.env("MORTONNET_OPENCL", &library)
            .env("MORTONNET_SHIM_REAL", ICD_LOADER)
            .env(setting.0, setting.1)
            .args([
                "-d",
                "opencl",
                "--plan",
                plan,
                "-b",
                "100",
                "model/digits/test.csv",
            ]);
        let r = feed(c.arg(format!("--profile=trace:{}", file.display())), "");
        assert_eq!(
            r.lines(),
            run(DIGITS, &["-d", "host", "model/digits/test.csv"], "").lines()
        );
        let trace = Trace::of(&file);
        trace.stream(&[100, 100, 100, 100, 100, 97]);
        agree(
            &trace.steps("opencl 0: ", "queue"),
            &sums(&trace.sums, None),
            false,
        );
        for name in names {
            let spans: Vec<u64> = trace
                .on("opencl 0: ", "queue")
                .filter(|s| s.name == name)
                .map(Span::batch)
                .collect();
            assert_eq!(spans, [1, 2, 3, 4, 5, 6], "{setting:?} {name}");
        }
    }
}

#[test]
fn several_devices() {
    let folder = Folder::new();
    let file = folder.path("trace");
    let arg = format!("--profile=trace:{}", file.display());
    let records = csv().repeat(5);
    let expected = run(DIGITS, &["-d", "host"], records.clone()).out;
    for (devices, names) in [
        ("all", ["opencl 0: ", "opencl 1: "]),
        ("host,1", ["host, ", "opencl 1: "]),
    ] {
        // Both devices are slow enough to get work.
        let slow = [("MORTONNET_SHIM_SLOW", "0:1:100:1,1:1:100:1")];
        let r = feed(
            &mut two(&folder, &slow, &["-d", devices, "-b", "20", &arg]),
            records.clone(),
        );
        assert_eq!((r.code, &*r.err), (Some(0), ""));
        assert!(
            r.out == expected,
            "{devices}: other classes than the host's"
        );
        let trace = Trace::of(&file);
        assert_eq!(trace.dropped, 0);
        let mut answered: BTreeMap<u64, u64> = BTreeMap::new();
        for (member, process) in (0..).zip(names) {
            let host = process.starts_with("host");
            // The member's chunks. Its thread did the same for each chunk.
            let chunks = |name: &str| -> Vec<(u64, u64)> {
                let spans = trace
                    .on(process, "thread")
                    .filter(|s| s.name == name && s.batch() > 0);
                let mut chunks: Vec<_> = spans.map(|s| (s.batch(), s.number("records"))).collect();
                chunks.sort_unstable();
                chunks
            };
            let done = chunks("answers");
            for name in ["submit", "wait for the engine"] {
                assert_eq!(chunks(name), done, "{devices} {process} {name}");
            }
            let times = &trace.sums["members"][member as usize];
            assert_eq!(times["batches"].as_u64(), Some(done.len() as u64));
            assert_eq!(
                times["records"].as_u64(),
                Some(done.iter().map(|c| c.1).sum())
            );
            done.iter()
                .for_each(|(batch, records)| *answered.entry(*batch).or_default() += records);
            let steps = trace.steps(process, if host { "thread" } else { "queue" });
            if !done.is_empty() {
                agree(&steps, &sums(&trace.sums, Some(member)), host);
            }
            // Steps without a batch measured the speed, before any other work.
            let measure = trace.on(process, "thread").find(|s| s.name == "measure");
            assert!(measure.is_some() || done.is_empty(), "{process}");
            for step in trace
                .on(process, "")
                .filter(|s| s.is_step() && s.batch() == 0)
            {
                assert!(measure.is_none_or(|m| step.start >= m.start && step.end <= m.end));
            }
            // Each engine is built on its own thread.
            let built = if host { "threads" } else { "build" };
            assert!(
                trace.on(process, "thread").any(|s| s.name == built),
                "{process}"
            );
        }
        // The records of each batch add up to those that the stream submitted.
        for (batch, records) in &answered {
            assert_eq!(
                trace.main("submit", *batch).number("records"),
                *records,
                "batch {batch}"
            );
        }
        assert_eq!(answered.values().sum::<u64>(), 2985);
    }
}

/// The simulator reports no access out of bounds and no race, also in the comparison of the clocks.
#[test]
fn the_simulator() {
    let folder = Folder::new();
    let (log, file) = (folder.path("oclgrind.log"), folder.path("trace"));
    let mut c = command(DIGITS);
    on(Witness::Oclgrind, &mut c, &log);
    let records: String = csv().lines().take(50).map(|l| format!("{l}\n")).collect();
    let args = ["-d", "opencl", "-b", "20", "--profile"];
    let r = feed(
        c.args(&args[..4])
            .arg(format!("{}=trace:{}", args[4], file.display())),
        records,
    );
    assert_eq!(r.lines().len(), 50);
    assert_eq!(fs::read_to_string(&log).unwrap_or_default(), "");
    Trace::of(&file).stream(&[20, 20, 10]);
}

#[test]
fn a_full_trace_keeps_its_beginning() {
    let folder = Folder::new();
    let file = folder.path("trace");
    let records = csv().repeat(16); // 9552 batches of at least eight spans
    let arg = format!("--profile=trace:{}", file.display());
    let r = run(DIGITS, &["-d", "host", "-b", "1", &arg], records.clone());
    assert_eq!((r.code, r.out.lines().count()), (Some(0), 9552));
    let trace = Trace::of(&file);
    let kept: usize = trace.tracks.values().map(Vec::len).sum();
    assert_eq!(kept, 65_536);
    assert_eq!(
        r.err,
        format!(
            "mortonnet: the trace is full: its first 65536 spans were kept, {} dropped\n",
            trace.dropped
        )
    );
    // All lost spans are counted. A batch has eight: parse, submit, decode, three steps, wait,
    // write. Reads and phases are few.
    let spans = kept as u64 + trace.dropped;
    assert!((8 * 9552..8 * 9552 + 1000).contains(&spans), "{spans}");
    let last = trace.on("", "").map(Span::batch).max().unwrap();
    assert!((8000..9552).contains(&last), "{last}");
    // All batches but the last are complete.
    let mut counts = vec![0; last as usize + 1];
    trace
        .on("", "")
        .filter(|s| s.batch() > 0)
        .for_each(|s| counts[s.batch() as usize] += 1);
    assert!(
        counts[1..last as usize - 2].iter().all(|n| *n == 8),
        "{last}"
    );
    // On stderr the trace is one JSON text, which says that it is full.
    let r = run(
        DIGITS,
        &["-d", "host", "-b", "1", "--profile=trace"],
        records,
    );
    assert!(Trace::parse(&r.err).dropped > 0);
}

/// A run that ends with an error has a trace up to there.
#[test]
fn a_run_that_fails() {
    let mut records: Vec<String> = csv().lines().map(str::to_string).collect();
    records[250] = "1,x".into();
    let folder = Folder::new();
    let file = folder.path("trace");
    let arg = format!("--profile=trace:{}", file.display());
    let r = run(
        DIGITS,
        &["-d", "host", "-b", "100", &arg],
        records.join("\n"),
    );
    assert_eq!((r.code, r.out.lines().count()), (Some(1), 250), "{}", r.err);
    let trace = Trace::of(&file);
    assert_eq!(trace.main("write", 2).number("records"), 100);
    // The decoding thread found the error.
    assert_eq!(trace.main("submit", 3).number("records"), 100);
}
