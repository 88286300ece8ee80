//! Reads `kernels/library.json` with the kernel sources that it names, and reads plan files.

use super::Mistakes;
use super::json::{self, Object};
use super::matrix::Files;
use crate::registry::read::{self, FORMAT, LibraryFile, plan_recipe};
use crate::registry::{Kernel, KernelSources, Library, PlanRecipe};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The path of the kernel library, as messages show it.
const LIBRARY: &str = "kernels/library.json";

/// Reads the kernel library in the folder `root`, and the kernel sources with their paths. A `.cl`
/// file that no kernel uses is reported as a mistake.
pub(crate) fn read(
    root: &Path,
    read: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<(Library, KernelSources)> {
    let folder = root.join("kernels");
    let mut files = Files { root, read };
    let text = files.text(&folder.join("library.json"), "kernels", mistakes)?;
    let value = json::parse(&text, LIBRARY, mistakes)?;
    let mut source = |path: &str, place: &str, mistakes: &mut Mistakes| {
        Some((
            format!("kernels/{path}"),
            files.text(&folder.join(path), place, mistakes)?,
        ))
    };
    let below = |path: &PathBuf| {
        path.strip_prefix(&folder)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let all: Vec<String> = cl_files(&folder).iter().map(below).collect();
    let file = LibraryFile {
        name: LIBRARY,
        text: &text,
        value: &value,
    };
    let found = read::read(&file, None, &mut source, &all, mistakes)?;
    Some((found.library, found.sources))
}

/// The content of a plan file, which `mortonnet tune --save` writes.
pub(crate) struct PlanFile {
    pub(crate) recipe: PlanRecipe,
    /// The layouts that the plan had when it was tuned. Each entry has the node, the role
    /// (`weights`, `biases`) and the layout of a constant.
    pub(crate) layouts: Vec<(String, String, String)>,
    /// The hash of the kernel library with which the plan was tuned.
    pub(crate) library: String,
}

/// Reads the plan file at `path`. `asked` is the setting that names it, for messages.
pub(crate) fn read_plan_file(
    path: &Path,
    asked: &str,
    library: &Library,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<PlanFile> {
    let name = path.display().to_string();
    let text = files.text(path, asked, mistakes)?;
    let value = json::parse(&text, &name, mistakes)?;
    let keys = [
        "format",
        "name",
        "engine",
        "batch",
        "about",
        "kernels",
        "few",
        "workGroups",
        "layouts",
        "library",
        "model",
        "device",
        "driver",
        "medianUs",
    ];
    let o = Object::new(&value, name.clone(), &keys, mistakes)?;
    o.require("format", mistakes);
    if let Some(format) = o.count("format", mistakes).filter(|&f| f != FORMAT) {
        mistakes.add(
            o.at("format"),
            format_args!("expected {FORMAT}, found {format}"),
        );
    }
    let recipe = plan_recipe(&o, &library.kernels, mistakes)?;
    if library.plans.iter().any(|p| p.name == recipe.name) {
        mistakes.add(
            o.at("name"),
            format_args!(
                "the library has a plan {}: choose another name",
                recipe.name
            ),
        );
    }
    let mut layouts = Vec::new();
    for (i, entry) in o
        .list("layouts", mistakes)
        .map_or(&[][..], |l| l)
        .iter()
        .enumerate()
    {
        let place = format!("{name}: layouts[{i}]");
        let entry = Object::new(entry, place, &["node", "role", "layout"], mistakes)?;
        let mut text = |key: &str| {
            entry.require(key, mistakes);
            entry.text(key, mistakes).map(String::from)
        };
        layouts.push((text("node")?, text("role")?, text("layout")?));
    }
    let made_with = o.text("library", mistakes).unwrap_or("").to_string();
    Some(PlanFile {
        recipe,
        layouts,
        library: made_with,
    })
}

/// Removes the plans that only programs with the lab contain, except the plan `asked` that the user
/// wants. Such a plan names another plan as its replacement. Device classes that used it get the
/// replacement.
pub(crate) fn drop_plans_of_the_lab(library: &mut Library, asked: &str) {
    let left_out = |p: &PlanRecipe| !p.without_lab.is_empty() && p.name != asked;
    for class in library.devices.to_mut() {
        if let Some(plan) = library
            .plans
            .iter()
            .find(|p| p.name == class.plan && left_out(p))
        {
            class.plan = plan.without_lab.clone();
        }
    }
    library.plans.to_mut().retain(|p| !left_out(p));
}

/// Removes the kernels that no plan uses, and the sources that no kernel uses. Also removes the
/// descriptions of kernels, which only the lab prints.
pub(crate) fn keep_those_of_plans(library: &mut Library, sources: &mut KernelSources) {
    let plans = &library.plans;
    let uses = |p: &PlanRecipe, name: &Cow<'static, str>| {
        p.kernels.contains(name) || p.few.as_ref().is_some_and(|few| few.kernels.contains(name))
    };
    library
        .kernels
        .to_mut()
        .retain(|k| plans.iter().any(|p| uses(p, &k.codename)));
    for kernel in library.kernels.to_mut() {
        (kernel.about, kernel.document) = ("".into(), "".into());
    }
    let kernels = &library.kernels;
    let made_of =
        |k: &Kernel, path: &str| k.source.as_deref() == Some(path) || k.common().any(|c| c == path);
    sources
        .to_mut()
        .retain(|(path, _)| kernels.iter().any(|k| made_of(k, path)));
}

/// Returns all `.cl` files in `folder` and its subfolders, sorted by path.
fn cl_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cl") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
