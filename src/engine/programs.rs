//! The compiled programs of a plan. They come from the cache folder or the compiler. If the device
//! allows a kernel only smaller work-groups than the plan has, the work-groups are shrunk.

use super::opencl::limits;
use crate::baked::library;
use crate::cl::{ClKernel, Context, Program};
use crate::engine::cache::{Blobs, Key};
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::ir::plan::Plan;
use crate::observe::profile::{Origins, Phases};
use crate::planner::fit;
use crate::registry::{self, DeviceLimits};

/// The compiled programs of a plan, one for each pair of source and compiler options.
pub(super) struct Programs {
    built: Vec<Built>,
    blobs: Result<Blobs, String>,
}

struct Built {
    source: String,
    options: String,
    program: Program,
    /// The kernel that was created to prove that the driver accepts the program. The first step
    /// that needs such a kernel takes it.
    spare: Option<ClKernel>,
    key: Key,
    /// True if the program was compiled and is not in the cache folder yet.
    new: bool,
}

impl Programs {
    /// Builds the programs of `plan`. A work-group that is larger than the device's limit for its
    /// kernel is shrunk in `plan`, if the kernel allows any size.
    pub(super) fn build(
        context: &Context,
        plan: &mut Plan,
        sources: &Sources,
        phases: &mut Phases,
    ) -> Result<Programs, Error> {
        let blobs = if sources.uncached {
            Err("off: not for measurements".into())
        } else {
            Blobs::open()
        };
        let origins = phases.origins.insert(Origins::default());
        blobs
            .iter()
            .flat_map(Blobs::ignored)
            .for_each(|line| origins.note(line));
        let mut programs = Programs {
            built: Vec::new(),
            blobs,
        };
        let limits = limits(context.device());
        let mut most = limits.work_group;
        let mut i = 0;
        while let Some(step) = plan.steps.get(i) {
            let Some((_, kernel)) = library().kernel(&step.kernel) else {
                i += 1;
                continue;
            };
            // The first limit is the device's. Once the kernel is compiled, the kernel's own limit
            // applies, which may be lower.
            let local = step.local.map(|local| shrunk(kernel, local, most, &limits));
            if local != step.local {
                let text = shrunk_note(&step.kernel, step.local, local, most);
                phases.origins.get_or_insert_default().note(text);
                plan.steps.to_mut()[i].local = local;
            }
            let step = &plan.steps[i];
            let program = fit::program(plan, step, library());
            let built = programs.find_or_build(context, program, kernel, sources, phases)?;
            let items = local.map_or(1, |(x, y)| x * y);
            let allowed = match &built.spare {
                Some(kernel) => kernel.work_group_limit()?,
                None => items,
            };
            if items <= allowed {
                (i, most) = (i + 1, limits.work_group);
            } else if local.is_some_and(|l| shrunk(kernel, l, allowed, &limits) != l) {
                most = allowed;
            } else {
                return Err(Error::limit(format!(
                    "plan {} cannot run on {}: {} wants work-groups of {items} work-items, this \
                     device allows this \
                     kernel {allowed}",
                    plan.name,
                    context.device().name,
                    step.kernel
                )));
            }
        }
        Ok(programs)
    }

    fn find_or_build(
        &mut self,
        context: &Context,
        (source, options): (String, String),
        kernel: &registry::Kernel,
        sources: &Sources,
        phases: &mut Phases,
    ) -> Result<&Built, Error> {
        let at = match self.find(&source, &options) {
            Some(at) => at,
            None => {
                let (text, program) = (sources.text(kernel)?, (source, options));
                let built = self.program(context, program, &text, &kernel.function, phases)?;
                self.built.push(built);
                self.built.len() - 1
            }
        };
        Ok(&self.built[at])
    }

    /// Takes a program from the cache folder or compiles it, and creates its first kernel.
    fn program(
        &self,
        context: &Context,
        (source, options): (String, String),
        text: &str,
        function: &str,
        phases: &mut Phases,
    ) -> Result<Built, Error> {
        let key = key(context, &source, &options, text);
        let name = format!("kernels/{source}");
        let cached = phases.time("cache", || {
            let blobs = self.blobs.as_ref().map_err(String::clone)?;
            let (binary, _loading) = blobs.load(&key)?;
            let program = Program::from_binary(context, &name, &binary, &options);
            let made = program.and_then(|program| Ok((program.kernel(function)?, program)));
            made.map_err(|e| format!("the driver refused {name} as a binary: {e}"))
        });
        let origins = phases.origins.get_or_insert_default();
        let (spare, program, new) = match cached {
            Ok((kernel, program)) => {
                origins.hits += 1;
                (kernel, program, false)
            }
            Err(why) => {
                origins.misses += 1;
                origins.note(why);
                let program = phases.time("build", || {
                    Program::from_source(context, &name, text, &options)
                })?;
                // Mali's driver compiles when the kernel is created.
                (
                    phases.time("kernels", || program.kernel(function))?,
                    program,
                    true,
                )
            }
        };
        Ok(Built {
            source,
            options,
            program,
            spare: Some(spare),
            key,
            new,
        })
    }

    fn find(&self, source: &str, options: &str) -> Option<usize> {
        self.built
            .iter()
            .position(|b| b.source == source && b.options == options)
    }

    /// Creates a kernel for each step of the plan. It is called once for each slot, because slots
    /// cannot share kernels.
    pub(super) fn kernels(&mut self, plan: &Plan) -> Result<Vec<ClKernel>, Error> {
        let steps = plan.steps.iter();
        steps
            .map(|step| {
                let (source, options) = fit::program(plan, step, library());
                let function = library()
                    .kernel(&step.kernel)
                    .map_or("", |(_, kernel)| &kernel.function);
                let missing =
                    || Error::device(format!("{}: its program was not built", step.kernel));
                let built = self
                    .find(&source, &options)
                    .map(|i| &mut self.built[i])
                    .ok_or_else(missing)?;
                Ok(match built.spare.take() {
                    Some(kernel) => kernel,
                    None => built.program.kernel(function)?,
                })
            })
            .collect()
    }

    /// Returns true if [`Programs::store`] would write a program, because one was compiled and
    /// there is a cache folder.
    pub(super) fn new_for_cache(&self) -> bool {
        self.blobs.is_ok() && self.built.iter().any(|b| b.new)
    }

    /// Stores the compiled programs in the cache folder. Must be called after the kernels exist,
    /// because Mali's driver has no useful binary before. Errors become notes, and the next start
    /// compiles again.
    pub(super) fn store(&self, phases: &mut Phases) {
        let Ok(blobs) = &self.blobs else { return };
        for built in self.built.iter().filter(|b| b.new) {
            let name = &built.source;
            let trouble = phases.time("store", || match built.program.binary() {
                Ok(binary) if binary.as_bytes().is_empty() => {
                    Some(format!("the driver gives no binary of kernels/{name}"))
                }
                Ok(binary) => blobs
                    .store(&built.key, binary.as_bytes())
                    .err()
                    .map(|e| format!("kernels/{name} was not stored in {}: {e}", blobs.folder())),
                Err(e) => Some(format!("the driver gives no binary: {e}")),
            });
            trouble
                .into_iter()
                .for_each(|text| phases.origins.get_or_insert_default().note(text));
        }
    }
}

fn key(context: &Context, source: &str, options: &str, text: &str) -> Key {
    let d = context.device();
    let hash = format!("{source} {:016x}", crate::engine::cache::hash(&[text]));
    let units = format!(
        "{} compute units, work-groups of {}",
        d.compute_units, d.max_work_group
    );
    let platform = format!("{}, {}", d.platform_name, d.platform_version);
    let driver = [
        ("device", &*d.name),
        ("vendor", &d.vendor),
        ("limits", &units),
        ("version", &d.version),
        ("compiler", &d.c_version),
        ("driver", &d.driver),
        ("platform", &platform),
        ("machine", std::env::consts::ARCH),
    ];
    Key::new(&driver, &[("source", &hash), ("options", options)])
}

/// Returns the message that a kernel has smaller work-groups than its plan wants.
fn shrunk_note(
    name: &str,
    wanted: Option<(usize, usize)>,
    found: Option<(usize, usize)>,
    most: usize,
) -> String {
    let words = |l: Option<(usize, usize)>| l.map_or(String::new(), |(x, y)| format!("{x}×{y}"));
    let (wanted, found) = (words(wanted), words(found));
    format!("{name}: work-groups of {found}, not {wanted}: the device allows {most} work-items")
}

/// Returns a work-group of at most `most` work-items for a kernel, as its sizes in both dimensions.
/// Each size divides the size in `local`, so the global sizes stay multiples of it. A kernel that
/// needs its size keeps `local`.
pub(super) fn shrunk(
    kernel: &registry::Kernel,
    local: (usize, usize),
    most: usize,
    limits: &DeviceLimits,
) -> (usize, usize) {
    let r = &kernel.restrictions;
    // A kernel with a tile or local memory is written for one work-group size only.
    if r.tile.is_some() || r.needs.local_bytes > 0 {
        return local;
    }
    let less = |n: usize| (1..n).rev().find(|d| n % d == 0).unwrap_or(1);
    let (mut x, mut y) = local;
    let (most_x, most_y) = limits.work_items;
    while x > most_x.max(1) {
        x = less(x);
    }
    while y > most_y.max(1) {
        y = less(y);
    }
    while x * y > most.max(1) {
        if y >= x { y = less(y) } else { x = less(x) }
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::EngineKind;

    /// No plan's compiler options assume that all numbers are finite. Overflows are detected by
    /// infinities and NaN, so the compiler must keep these.
    #[test]
    fn no_plan_assumes_finite_numbers() {
        for recipe in library().plans.iter() {
            let Ok(model) = crate::engine::model::Model::baked(recipe, None) else {
                continue;
            };
            for step in model
                .plan
                .steps
                .iter()
                .filter(|_| model.plan.engine == EngineKind::OpenCl)
            {
                let (_, options) = fit::program(&model.plan, step, library());
                assert!(options.starts_with("-cl-std=CL1.1"), "{options}");
                for bad in ["-cl-fast", "-cl-finite", "-cl-unsafe", "-ffast"] {
                    assert!(!options.contains(bad), "{}: {options}", recipe.name);
                }
            }
        }
    }

    #[test]
    fn work_groups_shrink_to_divisors() {
        let kernel = |name| {
            let (_, kernel) = library().kernel(name).unwrap();
            kernel
        };
        let limits = |work_group, work_items| DeviceLimits {
            work_group,
            work_items,
            local_bytes: 0,
            images: false,
            max_alloc: 0,
        };
        let wide = limits(1024, (1024, 1024));
        let free = kernel("affine_packed_4x4");
        for x in 1..=24 {
            for y in 1..=24 {
                for most in 1..=x * y {
                    let (a, b) = shrunk(free, (x, y), most, &wide);
                    assert!(
                        a * b <= most && x % a == 0 && y % b == 0,
                        "{x}×{y} in {most}: {a}×{b}"
                    );
                }
                assert_eq!(shrunk(free, (x, y), x * y, &wide), (x, y));
                let (a, b) = shrunk(free, (x, y), 1024, &limits(1024, (7, 5)));
                assert!(a <= 7 && b <= 5 && x % a == 0 && y % b == 0);
            }
        }
        // A broken driver may report a limit of 0. The loop that shrinks the sizes must still end.
        assert_eq!(shrunk(free, (4, 8), 0, &limits(0, (0, 0))), (1, 1));
        // Kernels with tiles or local memory keep their size. The first two kernels are in builds
        // with the lab only, because no plan uses them.
        let of_lab = ["matmul_tiled_16x32", "matmul_columns_local"]
            .into_iter()
            .filter(|_| cfg!(feature = "lab"));
        for name in of_lab.chain(["affine_narrow"]) {
            assert_eq!(shrunk(kernel(name), (16, 16), 8, &wide), (16, 16), "{name}");
        }
    }
}
