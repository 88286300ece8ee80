//! The shape of the modelled caches, and the part of a product that is simulated.

use super::pattern::Pattern;
use crate::cl::Device;

/// The largest n for the n × n matrices of the cache model. Three such matrices have fewer than 2³²
/// elements.
pub(crate) const MAX_SIZE: usize = 32768;

const MOST_CORES: usize = 1024;
const MOST_LINES: usize = 1 << 24;

/// The sizes of a device's caches, the number of its cores, and the threads that a core holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    /// Bytes of a cache line, a power of two from 16 to 4096.
    pub(crate) line: usize,
    /// Lines in the L1 of each core.
    pub(crate) l1_lines: usize,
    /// The ways of the L1: the number of lines that one set holds.
    pub(crate) l1_ways: usize,
    /// The number of lines in the L2 cache, which all cores share.
    pub(crate) l2_lines: usize,
    /// The ways of the L2: the number of lines that one set holds.
    pub(crate) l2_ways: usize,
    /// The number of cores of the device.
    pub(crate) cores: usize,
    /// The number of work-items that a core holds at a time.
    pub(crate) threads: usize,
    /// Bytes of a page of the device's address space, a power of two and at least a cache line.
    pub(crate) page: usize,
}

impl Default for CacheShape {
    /// Returns the shape of the Mali-T628: 256 L1 lines a core (ARM §1.4.6), an L2 of 128 KiB in
    /// 64-byte lines (thesis, table 2.1), and 128 threads a core (ARM). The documents do not give
    /// the ways, so 4 and 8 are assumed.
    fn default() -> CacheShape {
        CacheShape {
            line: 64,
            l1_lines: 256,
            l1_ways: 4,
            l2_lines: 2048,
            l2_ways: 8,
            cores: 4,
            threads: 128,
            page: 4096,
        }
    }
}

impl CacheShape {
    /// Returns the cache shape of `device`: its line size, its shared cache (as L2) and its cores.
    /// OpenCL does not report the rest, which stays as in the default. The L1 keeps its number of
    /// bytes. `None` if the driver reports no usable line size or cache size.
    pub(crate) fn of(device: &Device) -> Option<CacheShape> {
        let details = device.details();
        CacheShape::told(details.cache_line?, details.cache?, device.compute_units)
    }

    pub(super) fn told(line: u32, bytes: u64, cores: u32) -> Option<CacheShape> {
        let (mut s, line) = (CacheShape::default(), line as usize);
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return None;
        }
        s.l1_lines = s.l1_lines * s.line / line;
        s.line = line;
        s.l2_lines = usize::try_from(bytes)
            .ok()
            .map(|b| b / line)
            .filter(|n| *n > 0)?
            .min(MOST_LINES);
        // The L2 has the default number of ways, or the next smaller number that divides its lines.
        s.l2_ways = (1..=s.l2_ways).rev().find(|ways| s.l2_lines % ways == 0)?;
        s.cores = (cores as usize).clamp(1, MOST_CORES);
        Some(s)
    }

    /// Sets the fields that `--cache` names, for example `line=64,l1_lines=256,cores=4`.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        assign(
            "cache",
            text,
            &mut [
                ("line", &mut self.line),
                ("l1_lines", &mut self.l1_lines),
                ("l1_ways", &mut self.l1_ways),
                ("l2_lines", &mut self.l2_lines),
                ("l2_ways", &mut self.l2_ways),
                ("cores", &mut self.cores),
                ("threads", &mut self.threads),
                ("page", &mut self.page),
            ],
        )
    }

    /// Returns an error if no cache can have this shape.
    pub(crate) fn check(&self) -> Result<(), String> {
        let s = self;
        if !s.line.is_power_of_two() || !(16..=4096).contains(&s.line) {
            return Err(format!(
                "cache: line={}: expected a power of two from 16 to 4096",
                s.line
            ));
        }
        if !s.page.is_power_of_two() || s.page < s.line {
            return Err(format!(
                "cache: page={}: expected a power of two from line={} on",
                s.page, s.line
            ));
        }
        for (level, lines, ways) in [("l1", s.l1_lines, s.l1_ways), ("l2", s.l2_lines, s.l2_ways)] {
            if lines % ways != 0 {
                return Err(format!(
                    "cache: {level}_ways={ways} does not divide {level}_lines={lines}"
                ));
            }
        }
        if s.cores > MOST_CORES
            || s.threads > 4096
            || s.l1_lines > 1 << 16
            || s.l2_lines > MOST_LINES
        {
            return Err(format!(
                "cache: expected at most {MOST_CORES} cores, 4096 threads, 65536 L1 lines and \
                 {MOST_LINES} L2 lines"
            ));
        }
        Ok(())
    }

    /// Returns log2 of the number of floats in a cache line.
    pub(super) fn shift(&self) -> u32 {
        self.line.trailing_zeros() - 2
    }

    /// Returns the number of work-groups of `pattern` that a core holds at a time.
    pub(super) fn resident(&self, pattern: &Pattern) -> usize {
        (self.threads / pattern.items).max(1)
    }
}

/// The part of a matrix product that the cache model simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// A product with at most this many cache accesses (an estimate) is simulated in full.
    pub(crate) full: usize,
    /// The number of places in the grid of work-groups that are sampled of a larger product.
    pub(crate) places: usize,
    /// The number of waves that are counted at each place. A wave is all groups that the cores hold
    /// at once.
    pub(crate) waves: usize,
    /// A product whose sample has more cache accesses than this is not simulated.
    pub(crate) most: usize,
}

impl Default for Sample {
    /// By default, sizes up to 192 are simulated in full, and 5 waves of larger ones. Products
    /// whose work-items load little are simulated in full up to 384.
    fn default() -> Sample {
        Sample {
            full: 20_000_000,
            places: 5,
            waves: 1,
            most: 250_000_000,
        }
    }
}

/// Parses `name=value,…` into the fields. An error message begins with `what`.
fn assign(what: &str, text: &str, fields: &mut [(&str, &mut usize)]) -> Result<(), String> {
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
            return Err(format!(
                "{what}: expected one of {}, found \"{name}\"",
                known.join(", ")
            ));
        };
        match value.parse::<usize>() {
            Ok(n) if (1..=1 << 30).contains(&n) => **field = n,
            _ => {
                return Err(format!(
                    "{what}: {name}: expected a number from 1 to 2^30, found \"{value}\""
                ));
            }
        }
    }
    Ok(())
}
