//! Reads the innermost loops of a program from its machine code.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The disassembly of an architecture.
pub struct Machine {
    /// The disassembler.
    pub objdump: &'static str,
    /// Returns true for a multiply-add of a vector of floats or of whole numbers.
    multiplies: fn(&str) -> bool,
    /// Returns true for an instruction with a vector register.
    has_vector: fn(&str) -> bool,
    /// Returns true for a store.
    stores: fn(&str) -> bool,
    /// Returns true for a jump, and for an unconditional one.
    jumps: fn(&str) -> (bool, bool),
    /// The names of the stack pointer and the frame pointer.
    stack: [&'static str; 2],
}

pub static X86_64: Machine = Machine {
    objdump: "objdump",
    multiplies: |i| {
        let whole = i.contains("vpdpbusd") || i.contains("vpmaddwd");
        whole || i.starts_with("vfm") && i.contains("ps ")
    },
    has_vector: |i| ["%xmm", "%ymm", "%zmm"].iter().any(|r| i.contains(r)),
    // The destination is the last operand.
    stores: |i| i.ends_with(')') && !i.starts_with("prefetch") && !i.starts_with("cmp"),
    jumps: |i| {
        (
            i.starts_with('j'),
            i.starts_with("jmp") || i.starts_with("ret") || i.starts_with("ud2"),
        )
    },
    stack: ["(%rsp", "(%rbp"],
};

pub static AARCH64: Machine = Machine {
    objdump: "aarch64-linux-gnu-objdump",
    multiplies: |i| ["fmla", "sdot", "smmla"].iter().any(|m| i.starts_with(m)),
    has_vector: |i| i.contains(".4s") || operands(i).any(|o| register(o, "q")),
    stores: |i| i.starts_with("st"),
    jumps: |i| {
        let word = i.split_whitespace().next().unwrap_or_default();
        let always = ["b", "br", "ret", "brk", "udf"].contains(&word);
        (
            word == "b"
                || word.starts_with("b.")
                || word.starts_with("cb")
                || word.starts_with("tb"),
            always,
        )
    },
    stack: ["[sp", "[x29"],
};

pub static ARMV7: Machine = Machine {
    objdump: "arm-linux-gnueabihf-objdump",
    multiplies: |i| i.starts_with("vfma.f32") || i.starts_with("vmla.f32"),
    has_vector: |i| operands(i).any(|o| register(o, "q") || register(o, "d")),
    stores: |i| i.starts_with("vst"),
    jumps: |i| {
        let word = i.split_whitespace().next().unwrap_or_default();
        let word = word.split('.').next().unwrap_or_default();
        let conditions = [
            "eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le",
        ];
        let jump = word == "b"
            || word
                .strip_prefix('b')
                .is_some_and(|c| conditions.contains(&c));
        (
            jump || word.starts_with("cbz") || word.starts_with("cbnz"),
            word == "b" || word == "bx",
        )
    },
    stack: ["[sp", "[fp"],
};

fn operands(instruction: &str) -> impl Iterator<Item = &str> {
    instruction.split(|c: char| !c.is_ascii_alphanumeric())
}

/// Returns true for `prefix` followed by a number.
fn register(operand: &str, prefix: &str) -> bool {
    operand
        .strip_prefix(prefix)
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A function with its instructions and their addresses.
pub struct Function {
    pub name: String,
    body: Vec<(u64, String)>,
}

/// Returns the functions of a program with symbols.
pub fn functions(machine: &Machine, program: &Path) -> Vec<Function> {
    let output = Command::new(machine.objdump)
        .args(["-d", "-C", "--no-show-raw-insn"])
        .arg(program)
        .output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", machine.objdump));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut functions: Vec<Function> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            functions.push(Function {
                name: name.into(),
                body: Vec::new(),
            });
        } else if let (Some((address, instruction)), Some(f)) =
            (line.split_once(":\t"), functions.last_mut())
        {
            let instruction = instruction
                .split(['#', '@', ';'])
                .next()
                .unwrap()
                .replace('\t', " ");
            let instruction = instruction.split('<').next().unwrap().trim().to_string();
            f.body.push((
                u64::from_str_radix(address.trim(), 16).unwrap(),
                instruction,
            ));
        }
    }
    functions
}

pub struct Loop {
    pub instructions: Vec<String>,
    /// The number of vector multiply-adds.
    pub multiply_adds: usize,
    /// The instructions that move a vector to or from the stack.
    pub on_stack: Vec<String>,
    /// The stores of a vector to any address.
    pub stores: Vec<String>,
}

impl Function {
    /// Returns true if the function has vector multiply-adds.
    fn multiplies(&self, machine: &Machine) -> bool {
        self.body.iter().any(|(_, i)| (machine.multiplies)(i))
    }

    /// Returns the innermost loops with multiply-adds. Jumps through a table are not followed.
    pub fn loops(&self, machine: &Machine) -> Vec<Loop> {
        // The frame pointer counts only if the function sets it.
        let frame = self.body.iter().any(|(_, i)| {
            [
                "mov %rsp,%rbp",
                "mov x29, sp",
                "add x29, sp",
                "add fp, sp",
                "mov fp, sp",
            ]
            .iter()
            .any(|f| {
                i.split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .starts_with(f)
            })
        });
        let stack = &machine.stack[..if frame { 2 } else { 1 }];
        let blocks = self.blocks(machine);
        let read = |block: &BTreeSet<usize>| {
            let body = || {
                let of = |b: &usize| self.body[blocks[*b].range.clone()].iter().map(|(_, i)| i);
                block.iter().flat_map(of)
            };
            let vectors = |keep: &dyn Fn(&str) -> bool| {
                body()
                    .filter(|i| (machine.has_vector)(i) && keep(i))
                    .cloned()
                    .collect()
            };
            Loop {
                instructions: body().cloned().collect(),
                multiply_adds: body().filter(|i| (machine.multiplies)(i)).count(),
                on_stack: vectors(&|i| stack.iter().any(|s| i.contains(s))),
                stores: vectors(&|i| (machine.stores)(i)),
            }
        };
        innermost(&blocks)
            .iter()
            .map(read)
            .filter(|l| l.multiply_adds > 0)
            .collect()
    }

    /// Splits the function into basic blocks with their successors.
    fn blocks(&self, machine: &Machine) -> Vec<Block> {
        let at = |address: u64| self.body.binary_search_by_key(&address, |(a, _)| *a).ok();
        let target = |instruction: &str| {
            let to = instruction
                .rsplit([' ', ','])
                .next()?
                .trim_start_matches("0x");
            at(u64::from_str_radix(to, 16).ok()?)
        };
        let mut starts = BTreeSet::from([0usize]);
        for (i, (_, instruction)) in self.body.iter().enumerate() {
            let (jump, always) = (machine.jumps)(instruction);
            if jump || always {
                starts.extend(target(instruction).filter(|_| jump));
                starts.insert(i + 1);
            }
        }
        starts.remove(&self.body.len());
        let starts: Vec<usize> = starts.into_iter().collect();
        let block = |i: usize, &start: &usize| {
            let end = starts.get(i + 1).copied().unwrap_or(self.body.len());
            let last = &self.body[end - 1].1;
            let (jump, always) = (machine.jumps)(last);
            let next = (!always).then_some(end).filter(|e| *e < self.body.len());
            let to = target(last).filter(|_| jump).into_iter().chain(next);
            Block {
                range: start..end,
                next: to.filter_map(|t| starts.binary_search(&t).ok()).collect(),
            }
        };
        starts
            .iter()
            .enumerate()
            .map(|(i, start)| block(i, start))
            .collect()
    }
}

struct Block {
    range: std::ops::Range<usize>,
    next: Vec<usize>,
}

/// Returns the loops that contain no other loop. A loop belongs to a back edge, whose target
/// dominates its source. It has the blocks that reach the source without passing the target.
fn innermost(blocks: &[Block]) -> Vec<BTreeSet<usize>> {
    let mut before = vec![Vec::new(); blocks.len()];
    for (i, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|&n| before[n].push(i));
    }
    // For each block, its dominators: the blocks on every path to it.
    let mut through: Vec<BTreeSet<usize>> = vec![(0..blocks.len()).collect(); blocks.len()];
    through[0] = BTreeSet::from([0]);
    let mut changed = true;
    while changed {
        changed = false;
        for i in 1..blocks.len() {
            let ways = before[i].iter().map(|&b| through[b].clone());
            let mut common = ways.reduce(|a, b| &a & &b).unwrap_or_default();
            common.insert(i);
            changed |= common != through[i];
            through[i] = common;
        }
    }
    let mut loops: Vec<BTreeSet<usize>> = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        for &head in block.next.iter().filter(|n| through[i].contains(n)) {
            let (mut inside, mut open) = (BTreeSet::from([head]), vec![i]);
            while let Some(b) = open.pop() {
                if inside.insert(b) {
                    open.extend(&before[b]);
                }
            }
            loops.push(inside);
        }
    }
    let contains_another = |l: &&BTreeSet<usize>| loops.iter().any(|m| m != *l && m.is_subset(l));
    loops
        .iter()
        .filter(|l| !contains_another(l))
        .cloned()
        .collect()
}

/// Compares the micro-kernels of a program with the lines of tests/speed/kernels for one of `sets`.
///
/// Each listed kernel is a function. Each innermost loop of a tile has the tile's multiply-adds, or
/// a power-of-two multiple if the compiler has unrolled it. It moves no vector to memory. The loops
/// of other kernels move no vector to or from the stack. A function that multiplies and is not
/// listed is a mistake.
pub fn check_kernels(machine: &Machine, program: &Path, sets: &[&str]) {
    let list = include_str!("../speed/kernels");
    let listed: BTreeSet<String> = list
        .lines()
        .filter(|l| sets.contains(&l.split(' ').next().unwrap()))
        .map(String::from)
        .collect();
    assert!(
        listed.len() > sets.len(),
        "tests/speed/kernels has too few kernels of {sets:?}"
    );
    let (mut mistakes, mut found) = (Vec::new(), BTreeSet::new());
    for function in functions(machine, program) {
        let Some(kernel) = kernel(&function.name).filter(|_| function.multiplies(machine)) else {
            continue;
        };
        let loops = function.loops(machine);
        if !listed.contains(&kernel) {
            let counts: Vec<usize> = loops.iter().map(|l| l.multiply_adds).collect();
            mistakes.push(format!(
                "{kernel}: not listed, loops of {counts:?} multiply-adds"
            ));
        }
        let size = kernel.rsplit(' ').next().unwrap().split_once('x');
        let size = size.map(|(m, n)| [m, n].map(|n| n.parse::<usize>().unwrap()));
        let tile = size.map(|[m, n]| m * n);
        // Products of matrices are those of two windows. The last one may be multiplied twice.
        let of_two = size.map(|[m, n]| m.next_multiple_of(2) * n);
        let of_two = of_two.filter(|_| kernel.starts_with("i8mm"));
        if tile.is_some() && loops.is_empty() {
            mistakes.push(format!("{kernel}: no loop of multiply-adds"));
        }
        for l in &loops {
            let count = l.multiply_adds;
            // Behind the loop of four groups or columns, tiles that multiply lanes have a loop of
            // at most three turns, which the compiler may unroll as a whole.
            let of_lanes = ["dotprod", "i8mm", "aarch64 tile"]
                .iter()
                .any(|set| kernel.starts_with(set));
            let unrolled = |n: usize| n.is_power_of_two() || (n == 3 && of_lanes);
            let fits = |t: usize| count % t == 0 && unrolled(count / t);
            if tile.is_some_and(|t| !fits(t)) && !of_two.is_some_and(fits) {
                mistakes.push(format!("{kernel}: a loop of {count} multiply-adds"));
            }
            // The constants of the eleven activations exceed the registers of some instruction
            // sets.
            // A Winograd tile of 4 × 4 pixels has 36 elements, more than any set has registers.
            if kernel.ends_with(" activate") || kernel.ends_with("_of_four") {
                continue;
            }
            let vectors = if tile.is_some() && l.on_stack.is_empty() {
                &l.stores
            } else {
                &l.on_stack
            };
            if !vectors.is_empty() {
                let some = vectors[..vectors.len().min(2)].join("; ");
                mistakes.push(format!(
                    "{kernel}: {} vectors leave registers ({some}, …)",
                    vectors.len()
                ));
            }
        }
        found.insert(kernel);
    }
    for kernel in listed.difference(&found) {
        mistakes.push(format!(
            "{kernel}: listed, but no function: inlined or gone"
        ));
    }
    assert!(
        mistakes.is_empty(),
        "{} (tests/speed/kernels):\n{}",
        program.display(),
        mistakes.join("\n")
    );
}

/// Checks the main loop of each tile of floats for aarch64.
///
/// The loop multiplies by lanes of each record's values. Apart from its multiply-adds it has one
/// load for each vector of weights and one for each record, and integers. These are three for the
/// loop, and at most one step of an address for each load.
pub fn check_tiles_of_floats(program: &Path) {
    let machine = &AARCH64;
    let (mut tiles, mut mistakes) = (0, Vec::new());
    for function in functions(machine, program) {
        let Some(kernel) = kernel(&function.name).filter(|k| k.starts_with("aarch64 tile f32 "))
        else {
            continue;
        };
        tiles += 1;
        let (m, n) = kernel.rsplit(' ').next().unwrap().split_once('x').unwrap();
        let (m, n): (usize, usize) = (m.parse().unwrap(), n.parse().unwrap());
        let loops = function.loops(machine);
        let main = loops.iter().max_by_key(|l| l.multiply_adds);
        let main = main.unwrap_or_else(|| panic!("{kernel}: no loop of multiply-adds"));
        let columns = main.multiply_adds / (m * n);
        let (vectors, integers): (Vec<&String>, Vec<&String>) =
            (main.instructions.iter()).partition(|i| (machine.has_vector)(i));
        let loads = vectors.iter().filter(|i| i.starts_with("ld")).count();
        let others: Vec<_> = (vectors.iter())
            .filter(|i| {
                !(machine.multiplies)(i) && !i.starts_with("ldr q") && !i.starts_with("ldp q")
            })
            .collect();
        if columns < 4
            || loads > columns * n + m
            || integers.len() > 3 + loads
            || !others.is_empty()
        {
            mistakes.push(format!(
                "{kernel}: {columns} columns at a time, {loads} loads, {} integers, {others:?}",
                integers.len()
            ));
        }
    }
    assert!(
        tiles == 16 && mistakes.is_empty(),
        "{tiles} tiles:\n{}",
        mistakes.join("\n")
    );
}

/// Returns the line of tests/speed/kernels for a micro-kernel: instruction set, name, weight type
/// and tile.
fn kernel(function: &str) -> Option<String> {
    // A function of the C file.
    if let Some(name) = function.strip_prefix("mortonnet_") {
        let parts: Vec<&str> = name.split('_').collect();
        return match parts[..] {
            [set, stored, m, n] => Some(format!("{set} {stored} {m}x{n}")),
            [set, name] => Some(format!("{set} {name}")),
            _ => None,
        };
    }
    // The portable kernels have no vector registers.
    if !function.contains("simd::micro::") || function.contains("Lanes4") {
        return None;
    }
    let sets = [
        ("F32x16", "avx512"),
        ("F32x8", "avx2"),
        ("F32x4", "aarch64"),
    ];
    let of_type = sets
        .iter()
        .find(|(vector, _)| function.contains(vector))
        .map(|(_, set)| *set);
    let last = |path: &str| path.rsplit("::").next().unwrap().to_string();
    if let Some((_, arguments)) = function.split_once("tiles::<") {
        let arguments: Vec<String> = arguments
            .trim_end_matches('>')
            .split(", ")
            .map(last)
            .collect();
        return match &arguments[..] {
            // A tile that prefetches its weights is far.
            [stored, m, n, far] => {
                let far = if far == "true" { "far " } else { "" };
                Some(format!("{} tile {stored} {far}{m}x{n}", of_type?))
            }
            // A tile of whole numbers.
            [m, n] => {
                let types = [
                    ("Bytes512", "whole"),
                    ("Bytes256", "whole"),
                    ("LongPairs", "whole"),
                    ("Pairs", "whole"),
                    ("Matrices", "i8mm"),
                    ("Dots", "dotprod"),
                ];
                let (of_type, set) = types.iter().find(|(t, _)| function.contains(t))?;
                Some(format!("{set} tile {of_type} {m}x{n}"))
            }
            _ => None,
        };
    }
    let mut name = last(function.split("::<").next().unwrap());
    // Winograd's transforms have the pixels along a side of a tile as their last argument.
    if function.ends_with("F32x4, 4>") {
        name += "_of_four";
    }
    match name.split_once('_') {
        Some((set, name)) if set.starts_with("avx") => Some(format!("{set} {name}")),
        _ => Some(format!("{} {name}", of_type?)),
    }
}
