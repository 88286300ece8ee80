//! The cache of compiled kernels: its content, and all ways in which it may be unusable.

use super::support::{
    DIGITS, Folder, ICD_LOADER, Run, Witness, bounded, checksum, command, feed, fifo, on, root,
    shim,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Makes a command that runs on PoCL through the shim, with a cache folder. The profile goes to
/// `FOLDER/profile`.
fn cached(folder: &Folder, cache: &Path, plan: &str, settings: &[(&str, &str)]) -> Command {
    let library = folder.path("libshim.so");
    let library = if library.exists() {
        library
    } else {
        shim(folder, &[])
    };
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_OPENCL", library)
        .env("MORTONNET_SHIM_REAL", ICD_LOADER)
        .env("MORTONNET_CACHE", cache)
        .envs(settings.iter().copied())
        .args(["-d", "opencl", "--plan", plan, "model/digits/test.csv"])
        .arg(format!(
            "--profile=json:{}",
            folder.path("profile").display()
        ));
    c
}

/// A plan with several programs.
const PLAN: &str = "adreno";

/// The cache's part of `--profile`.
#[derive(Debug)]
struct Cache {
    result: String,
    hits: u64,
    misses: u64,
    notes: String,
    phases: serde_json::Value,
}

/// The limits for a start on a busy machine. Without an attack it takes 0.1 to 0.4 s and 88 MB with
/// PoCL.
const LIMIT: Duration = Duration::from_secs(60);
const MOST: u64 = 1 << 30;

/// Runs the command and checks that the answers are the host's, for any content of the cache
/// folder.
fn ask(folder: &Folder, mut command: Command) -> Cache {
    let r = bounded(&mut command, "", LIMIT, MOST);
    assert_eq!(r.lines(), expected().lines(), "{}", r.err);
    let p: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path("profile")).unwrap()).unwrap();
    let cache = &p["kernel_cache"];
    let notes: Vec<&str> = cache["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    // The baked weights have the layout of the Mali plans.
    let baked = p["plan"]
        .as_str()
        .is_some_and(|plan| plan.starts_with("mali"));
    assert_eq!(p["laid_out_again"].as_u64() == Some(0), baked, "{p}");
    Cache {
        result: cache["result"].as_str().unwrap().into(),
        hits: cache["hits"].as_u64().unwrap(),
        misses: cache["misses"].as_u64().unwrap(),
        notes: notes.join("\n"),
        phases: p["startup_phases_us"].clone(),
    }
}

fn expected() -> Run {
    let mut c = command(DIGITS);
    feed(c.args(["-d", "host", "model/digits/test.csv"]), "")
}

/// The files of the cache folder, sorted by name.
fn files(cache: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(cache)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Fills a cache folder with one run. Also returns the number of programs.
fn filled() -> (Folder, PathBuf, u64) {
    let folder = Folder::new();
    let cache = folder.path("cache/below");
    let first = ask(&folder, cached(&folder, &cache, PLAN, &[]));
    assert_eq!(
        (&*first.result, first.hits, &*first.notes),
        ("MISS", 0, "not there yet")
    );
    (folder, cache, first.misses)
}

#[test]
fn the_second_start_takes_the_programs_from_the_cache() {
    let (folder, cache, programs) = filled();
    assert!(programs >= 2);
    assert_eq!(
        files(&cache).len() as u64,
        programs,
        "a blob for each program, and nothing else"
    );
    assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
    let run =
        |plan, settings: &[(&str, &str)]| ask(&folder, cached(&folder, &cache, plan, settings));
    let second = run(PLAN, &[]);
    assert_eq!(
        (&*second.result, second.hits, second.misses, &*second.notes),
        ("HIT", programs, 0, "")
    );
    // Each phase of the start has a time, and so has the first batch.
    assert!(second.phases["build"].is_null(), "{second:?}");
    for phase in [
        "library", "devices", "layout", "context", "cache", "upload", "buffers", "kernels",
    ] {
        assert!(
            second.phases[phase].as_f64() > Some(0.0),
            "{phase}: {second:?}"
        );
    }
    let profile = fs::read_to_string(folder.path("profile")).unwrap();
    assert!(
        profile.contains("\"first_batch_us\":") && !profile.contains("\"first_batch_us\":null")
    );
    let log = folder.put("calls", "");
    run(PLAN, &[("MORTONNET_SHIM_LOG", log.to_str().unwrap())]);
    let calls = fs::read_to_string(&log).unwrap();
    assert!(
        calls.contains("clCreateProgramWithBinary") && !calls.contains("clCreateProgramWithSource")
    );
    // With another driver or source, each program is compiled once.
    assert_eq!(
        run(PLAN, &[("MORTONNET_SHIM_DRIVER", "2.0")]).result,
        "MISS"
    );
    assert_eq!(run(PLAN, &[("MORTONNET_SHIM_DRIVER", "2.0")]).result, "HIT");
    let kernels = folder.path("kernels");
    fs::create_dir_all(kernels.join("argmax")).unwrap();
    let source = fs::read_to_string(root().join("kernels/argmax/cm.cl")).unwrap();
    fs::write(kernels.join("argmax/cm.cl"), source + "\n").unwrap();
    let edited = || {
        let mut c = cached(&folder, &cache, PLAN, &[]);
        c.arg("--kernels").arg(&kernels);
        ask(&folder, c)
    };
    let found = edited();
    assert_eq!(
        (&*found.result, found.hits, found.misses),
        ("MISS", programs - 1, 1)
    );
    assert_eq!(edited().result, "HIT");
    // The table of the profile has the same result.
    let off = [("MORTONNET_CACHE", "")];
    for (word, hits, settings) in [("HIT", programs, &[][..]), ("MISS", 0, &off)] {
        let r = feed(cached(&folder, &cache, PLAN, settings).arg("--profile"), "");
        let line = format!(
            "kernels    {word}: {hits} of {programs} programs came compiled from the cache\n"
        );
        assert!(r.err.contains(&line), "{}", r.err);
    }
    // Measurements neither read nor write the cache.
    let before = files(&cache);
    let mut c = command(DIGITS);
    on(Witness::Pocl, &mut c, &folder.path("log"));
    c.env("MORTONNET_CACHE", &cache);
    let r = feed(c.args(["bench", "network", "-d", "0"]), "");
    assert_eq!((r.code, files(&cache)), (Some(0), before), "{}", r.err);
}

#[test]
fn without_a_folder_everything_is_compiled() {
    let (folder, cache, programs) = filled();
    let before = files(&cache);
    let off = ask(&folder, cached(&folder, Path::new(""), PLAN, &[]));
    assert_eq!(
        (&*off.result, off.misses, &*off.notes),
        ("MISS", programs, "off: MORTONNET_CACHE is empty")
    );
    let mut none = cached(&folder, &cache, PLAN, &[]);
    for name in [
        "MORTONNET_CACHE",
        "CACHE_DIRECTORY",
        "XDG_CACHE_HOME",
        "HOME",
    ] {
        none.env_remove(name);
    }
    none.env("POCL_CACHE_DIR", folder.path("pocl"));
    let none = ask(&folder, none);
    assert!(
        none.result == "MISS" && none.notes.starts_with("off: no folder"),
        "{none:?}"
    );
    // A folder that cannot be created.
    let file = folder.put("file", "");
    for place in [file.join("below"), "/proc/nowhere/below".into()] {
        let r = ask(&folder, cached(&folder, &place, PLAN, &[]));
        assert!(
            r.result == "MISS" && r.notes.contains("was not stored in"),
            "{r:?}"
        );
    }
    assert_eq!(files(&cache), before);
}

/// Splits a blob into its key lines and the driver's bytes.
fn parts(blob: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = blob.windows(7).position(|w| w == b"\nbytes ").unwrap() + 1;
    let start = end + blob[end..].windows(2).position(|w| w == b"\n\n").unwrap() + 2;
    (blob[..end].to_vec(), blob[start..].to_vec())
}

/// Makes a blob with a valid checksum.
fn blob(head: &[u8], bytes: &[u8]) -> Vec<u8> {
    let sizes = format!(
        "bytes {}\nchecksum {:016x}\n\n",
        bytes.len(),
        checksum(bytes)
    );
    [head, sizes.as_bytes(), bytes].concat()
}

#[test]
fn truncated_foreign_and_refused_blobs_are_compiled_and_written_again() {
    let (folder, cache, programs) = filled();
    let blobs = files(&cache);
    let all: Vec<Vec<u8>> = blobs.iter().map(|b| fs::read(b).unwrap()).collect();
    let is_argmax = |b: &&Vec<u8>| String::from_utf8_lossy(b).contains("\nsource argmax/");
    let argmax = all.iter().find(is_argmax).unwrap();
    let place = all.iter().position(|b| !is_argmax(&b)).unwrap();
    let (first, file) = (&all[place], &blobs[place]);
    let (head, bytes) = parts(first);
    assert_eq!(
        blob(&head, &bytes),
        *first,
        "the format of the test is the program's"
    );
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "it is no blob"),
        (
            "truncated in the key",
            first[..100].to_vec(),
            "of another device, driver or version",
        ),
        (
            "truncated at the sizes",
            first[..head.len() + 8].to_vec(),
            "it is damaged",
        ),
        (
            "truncated in the bytes",
            first[..first.len() - 1].to_vec(),
            "it is damaged",
        ),
        ("longer", [first, &b"x"[..]].concat(), "it is damaged"),
        ("somebody's text", b"hello\n".repeat(1000), "it is no blob"),
        (
            "another program's",
            argmax.clone(),
            "of another device, driver or version",
        ),
        (
            "bytes that the driver refuses",
            blob(&head, &[b'x'; 5000]),
            "the driver refused ",
        ),
        (
            "bytes without the kernel",
            blob(&head, &parts(argmax).1),
            "CL_INVALID_KERNEL_NAME",
        ),
    ];
    for (what, content, why) in cases {
        fs::write(file, content).unwrap();
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert_eq!(
            (&*r.result, r.hits, r.misses),
            ("MISS", programs - 1, 1),
            "{what}: {r:?}"
        );
        assert!(r.notes.contains(why), "{what}: {r:?}");
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert_eq!((&*r.result, &*r.notes), ("HIT", ""), "{what}");
    }
    assert_eq!(files(&cache), blobs, "nothing else is left there");
    // A folder has the name of the blob.
    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
    for _ in 0..2 {
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert!(r.misses == 1 && r.notes.contains("was not stored"), "{r:?}");
    }
    assert_eq!(files(&cache), blobs);
}

#[test]
fn a_driver_that_takes_no_binaries_gets_sources() {
    let (folder, cache, programs) = filled();
    for (fail, part) in [
        ("clCreateProgramWithBinary:0:-42", "CL_INVALID_BINARY"),
        ("clBuildProgram:1:-11", "CL_BUILD_PROGRAM_FAILURE"),
        ("clCreateKernel:1:-46", "CL_INVALID_KERNEL_NAME"),
    ] {
        let r = ask(
            &folder,
            cached(&folder, &cache, PLAN, &[("MORTONNET_SHIM_FAIL", fail)]),
        );
        let misses = if fail.contains(":0:") { programs } else { 1 };
        assert!(
            r.misses == misses && r.notes.contains(part),
            "{fail}: {r:?}"
        );
        assert_eq!(
            files(&cache).len() as u64,
            programs,
            "{fail}: no marker is left"
        );
    }
    fs::remove_dir_all(&cache).unwrap();
    let none = [("MORTONNET_SHIM_FAIL", "clGetProgramInfo:0:-30")];
    let r = ask(&folder, cached(&folder, &cache, PLAN, &none));
    assert!(
        r.notes.contains("the driver gives no binary") && !cache.exists(),
        "{r:?}"
    );
}

/// Runs the command as a user who is not root, because permissions do not restrict root.
fn ordinary(c: &mut Command) {
    if is_root() {
        c.uid(65534).gid(65534);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_read_only_folder_serves_and_another_users_blob_does_not() {
    let (folder, cache, programs) = filled();
    let before = files(&cache);
    // Copies of the program and its input that an ordinary user can read, and a cache of PoCL.
    let program = folder.executable("mortonnet", fs::read(DIGITS).unwrap());
    fs::copy(
        root().join("model/digits/test.csv"),
        folder.path("test.csv"),
    )
    .unwrap();
    let open = folder.path("open");
    fs::create_dir(&open).unwrap();
    mode(&folder.0, 0o755);
    mode(&folder.path("cache"), 0o755);
    mode(&open, 0o777);
    before.iter().for_each(|b| mode(b, 0o644));
    let run = |plan: &str| {
        let template = cached(&folder, &cache, plan, &[]);
        let mut c = Command::new(&program);
        c.current_dir(&folder.0)
            .envs(template.get_envs().filter_map(|(k, v)| Some((k, v?))));
        c.env("POCL_CACHE_DIR", &open).env("HOME", &open);
        c.args([
            "-d",
            "opencl",
            "--plan",
            plan,
            "--profile=json:open/profile",
            "test.csv",
        ]);
        ordinary(&mut c);
        let r = feed(&mut c, "");
        assert_eq!(r.out, expected().out, "{}", r.err);
        let profile = fs::read(open.join("profile")).unwrap();
        let p: serde_json::Value = serde_json::from_slice(&profile).unwrap();
        p["kernel_cache"].clone()
    };
    mode(&cache, 0o555);
    let hit = run(PLAN);
    assert_eq!(
        (hit["result"].as_str(), hit["hits"].as_u64()),
        (Some("HIT"), Some(programs)),
        "{hit}"
    );
    let miss = run("mali-bifrost").to_string();
    assert!(
        miss.contains("MISS") && miss.contains("was not stored in") && miss.contains("denied"),
        "{miss}"
    );
    mode(&cache, 0o000);
    let miss = run(PLAN).to_string();
    assert!(miss.contains("MISS") && miss.contains("denied"), "{miss}");
    mode(&cache, 0o755);
    assert_eq!(files(&cache), before);
    if is_root() {
        chown(&before[0], Some(65534), None).unwrap();
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert!(
            r.misses == 1 && r.notes.contains("it belongs to another user"),
            "{r:?}"
        );
    }
}

#[test]
fn what_is_no_plain_file_neither_stops_a_start_nor_is_read() {
    let (folder, cache, programs) = filled();
    let blobs = files(&cache);
    let run = || ask(&folder, cached(&folder, &cache, PLAN, &[]));
    type Attack = (&'static str, fn(&Path), &'static str);
    let attacks: [Attack; 5] = [
        ("a FIFO", fifo, "it is no plain file"),
        (
            "3 GB without a block",
            |p| fs::File::create(p).unwrap().set_len(3 << 30).unwrap(),
            "has more than",
        ),
        (
            "a link to bytes without end",
            |p| symlink("/dev/zero", p).unwrap(),
            "it is a link",
        ),
        (
            "a link to nothing",
            |p| symlink("nowhere", p).unwrap(),
            "it is a link",
        ),
        (
            "a file that all may write",
            |p| mode(p, 0o666),
            "others may write to it (mode 666)",
        ),
    ];
    for (what, attack, why) in attacks {
        let bytes = fs::read(&blobs[0]).unwrap();
        if what != "a file that all may write" {
            fs::remove_file(&blobs[0]).unwrap();
        }
        attack(&blobs[0]);
        let r = run();
        assert_eq!((r.hits, r.misses), (programs - 1, 1), "{what}: {r:?}");
        assert!(r.notes.contains(why), "{what}: {r:?}");
        // A valid blob is in place again and is loaded.
        let about = fs::symlink_metadata(&blobs[0]).unwrap();
        assert!(
            about.is_file()
                && about.mode() & 0o777 == 0o644
                && about.len() < 2 * bytes.len() as u64
        );
        assert_eq!(run().result, "HIT", "{what}");
    }
    // Markers with the same attacks do not mark a blob as bad. `-v` and the profile list the
    // ignored files.
    let name = blobs[0].to_str().unwrap();
    for end in [".bad", ".1-1-1.loading"] {
        let marker = PathBuf::from(format!("{name}{end}"));
        let attacks: [fn(&Path); 3] = [
            fifo,
            |p| symlink("/dev/zero", p).unwrap(),
            |p| fs::create_dir(p).unwrap(),
        ];
        for attack in attacks {
            attack(&marker);
            let r = run();
            assert_eq!((&*r.result, r.hits), ("HIT", programs), "{end}: {r:?}");
            let line = format!(
                "{} is ignored: it is no plain file of this user's",
                marker.display()
            );
            assert_eq!(r.notes, line);
            let mut c = cached(&folder, &cache, PLAN, &[]);
            let r = bounded(c.arg("-v"), "", LIMIT, MOST);
            assert!(
                r.err.contains(&format!("mortonnet: kernels: {line}\n")),
                "{}",
                r.err
            );
            fs::remove_file(&marker)
                .or_else(|_| fs::remove_dir(&marker))
                .unwrap();
        }
    }
    if is_root() {
        let marker = PathBuf::from(format!("{name}.bad"));
        fs::write(&marker, "").unwrap();
        chown(&marker, Some(65534), None).unwrap();
        assert_eq!(run().result, "HIT", "another user's word on a blob");
    }
}

#[test]
fn a_folder_that_others_may_write_is_not_used() {
    let (folder, cache, programs) = filled();
    let before = files(&cache);
    // A sticky bit does not keep others from creating files first.
    for bits in [0o777, 0o1777, 0o775] {
        mode(&cache, bits);
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert_eq!((&*r.result, r.misses), ("MISS", programs));
        let line = format!(
            "off: {0} is not used: others may write to it (mode {bits:03o}); chmod go-w {0}, or \
             name another in \
             MORTONNET_CACHE",
            cache.display()
        );
        assert_eq!(r.notes, line);
        let r = bounded(
            cached(&folder, &cache, PLAN, &[]).arg("-v"),
            "",
            LIMIT,
            MOST,
        );
        assert!(
            r.err.contains(&format!("mortonnet: kernels: {line}\n")),
            "{}",
            r.err
        );
        // The host's start, which looks for tuning records, does not use the folder either.
        let mut c = command(DIGITS);
        c.env("MORTONNET_CACHE", &cache)
            .args(["-d", "host", "-v", "model/digits/test.csv"]);
        let r = bounded(&mut c, "", LIMIT, MOST);
        assert!(
            r.code == Some(0)
                && r.err
                    .contains(&format!("mortonnet: tuning records: {line}\n")),
            "{}",
            r.err
        );
        let mut c = command(DIGITS);
        c.env("MORTONNET_CACHE", &cache)
            .args(["tune", "-d", "host", "--time-limit", "1"]);
        let r = bounded(&mut c, "", LIMIT, MOST);
        assert!(
            r.code == Some(0) && r.out.contains("it cannot be remembered in"),
            "{}{}",
            r.out,
            r.err
        );
    }
    assert_eq!(files(&cache), before);
    mode(&cache, 0o755);
    let link = folder.path("link");
    symlink(&cache, &link).unwrap();
    assert_eq!(
        ask(&folder, cached(&folder, &link, PLAN, &[])).result,
        "HIT"
    );
    if is_root() {
        chown(&cache, Some(65534), None).unwrap();
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert!(
            r.result == "MISS"
                && r.notes
                    .contains("it belongs to another user (65534, this is 0)"),
            "{r:?}"
        );
    }
}

/// Runs the first records under oclgrind, a driver that writes no files itself, and checks that it
/// reports nothing. `ulimit` limits the size of files, in units of 512 bytes.
fn simulated(folder: &Folder, cache: &Path, ulimit: &str) -> serde_json::Value {
    const RECORDS: usize = 5;
    let log = folder.path("oclgrind.log");
    let mut template = command(DIGITS);
    on(Witness::Oclgrind, &mut template, &log);
    let mut c = Command::new("sh");
    c.args([
        "-c",
        "trap '' XFSZ; ulimit -f $0; exec \"$@\"",
        ulimit,
        DIGITS,
    ]);
    c.args([
        "-d",
        "opencl",
        "--plan",
        "mali-midgard",
        "-b",
        "33",
        "--profile=json",
    ])
    .current_dir(root());
    c.envs(template.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env("MORTONNET_CACHE", cache);
    let csv = fs::read_to_string(root().join("model/digits/test.csv")).unwrap();
    let r = feed(
        &mut c,
        csv.lines()
            .take(RECORDS)
            .map(|l| format!("{l}\n"))
            .collect::<String>(),
    );
    assert_eq!(r.lines(), expected().lines()[..RECORDS], "{}", r.err);
    assert_eq!(fs::read_to_string(&log).unwrap_or_default(), "");
    let p: serde_json::Value = serde_json::from_str(&r.err).unwrap();
    p["kernel_cache"].clone()
}

#[test]
fn a_full_disk_costs_the_cache_and_nothing_else() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    // Writes beyond 512 bytes fail, as on a full disk.
    for _ in 0..2 {
        let full = simulated(&folder, &cache, "1").to_string();
        let said = full.contains("was not stored in") && full.contains("File too large");
        assert!(full.contains("\"MISS\"") && said, "{full}");
        assert!(files(&cache).is_empty(), "{:?}", files(&cache));
    }
    for result in ["MISS", "HIT"] {
        assert_eq!(
            simulated(&folder, &cache, "unlimited")["result"].as_str(),
            Some(result)
        );
    }
}

/// Makes the process die of signal 6 when it loads a binary.
const CRASH: (&str, &str) = ("MORTONNET_SHIM_FAIL", "clCreateProgramWithBinary:0:6");

#[test]
fn a_blob_that_crashed_the_driver_is_not_loaded_again() {
    let (folder, cache, programs) = filled();
    // The first blob is marked in each of two runs. Then no more is loaded.
    for bad in 1..=2 {
        let died = cached(&folder, &cache, PLAN, &[CRASH])
            .output()
            .unwrap()
            .status
            .signal();
        assert_eq!(died, Some(6), "{bad}");
    }
    for _ in 0..3 {
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[CRASH]));
        assert_eq!((r.hits, r.misses), (0, programs));
        assert!(
            r.notes
                .starts_with("off: a process died while this driver loaded one; remove "),
            "{r:?}"
        );
    }
    // After a driver was fixed under the same version, the user removes the markers.
    assert_eq!(
        ask(&folder, cached(&folder, &cache, PLAN, &[])).result,
        "MISS"
    );
    let bad: Vec<_> = files(&cache)
        .into_iter()
        .filter(|f| f.extension().is_some())
        .collect();
    assert!(
        bad.len() == 2 && bad.iter().all(|b| b.to_str().unwrap().ends_with(".bad")),
        "{bad:?}"
    );
    bad.iter().for_each(|b| fs::remove_file(b).unwrap());
    ask(&folder, cached(&folder, &cache, PLAN, &[]));
    assert_eq!(
        ask(&folder, cached(&folder, &cache, PLAN, &[])).result,
        "HIT"
    );
}

/// Starts a run and waits until it loads a blob, which the shim makes slow.
fn slow(folder: &Folder, cache: &Path) -> Child {
    let mut c = cached(
        folder,
        cache,
        PLAN,
        &[("MORTONNET_SHIM_SLEEP", "clCreateProgramWithBinary:60000")],
    );
    let child = c
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !files(cache)
        .iter()
        .any(|f| f.to_str().unwrap().ends_with(".loading"))
    {
        assert!(start.elapsed() < Duration::from_secs(60), "no marker");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_blob_that_is_being_loaded_is_free_for_others_unless_the_loader_died() {
    let (folder, cache, programs) = filled();
    let mut loader = slow(&folder, &cache);
    for _ in 0..2 {
        let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
        assert_eq!(
            (&*r.result, r.hits),
            ("HIT", programs),
            "a loader at work is no crash: {r:?}"
        );
    }
    loader.kill().unwrap();
    loader.wait().unwrap();
    let r = ask(&folder, cached(&folder, &cache, PLAN, &[]));
    assert_eq!((r.hits, r.misses), (programs - 1, 1), "{r:?}");
    assert!(
        r.notes
            .contains("a process died while this driver loaded one"),
        "{r:?}"
    );
    assert_eq!(
        files(&cache).len() as u64,
        programs,
        "the other blobs, and a word on the bad one"
    );
}

#[test]
fn many_processes_may_start_at_once() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let expected = expected().out;
    for round in ["MISS", "HIT"] {
        let start = |n: usize| {
            let mut c = cached(&folder, &cache, PLAN, &[]);
            c.arg(format!(
                "--profile=json:{}",
                folder.path(&format!("profile-{n}")).display()
            ));
            c.stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let all: Vec<Child> = (0..16).map(start).collect();
        for (n, child) in all.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            assert!(
                output.status.success() && output.stdout == expected.as_bytes(),
                "{n}"
            );
            let profile = fs::read_to_string(folder.path(&format!("profile-{n}"))).unwrap();
            assert!(
                round == "MISS" || profile.contains("\"result\":\"HIT\""),
                "{n}: {profile}"
            );
        }
        let names = files(&cache);
        assert!(
            names.len() == 5 && names.iter().all(|n| n.extension().is_none()),
            "{round}: {names:?}"
        );
    }
}
