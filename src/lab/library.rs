//! `bench --library FILE` adds the kernels of a file in the format of `kernels/library.json`. So a
//! board can check and time another tile, layout or work-group without a new build. The same code
//! reads this file and, in the build, the library.

use super::json;
use crate::baked;
use crate::engine::sources::Sources;
use crate::error::Error;
use crate::escape;
use crate::registry::mistakes::Mistakes;
use crate::registry::read::{self, BaseLibrary, LibraryFile};
use std::borrow::Cow;
use std::fs::read_to_string;
use std::path::Path;

/// Puts the kernel entries of `file` before the program's entries. A file's entry replaces the
/// program's entry of the same name. Sources come from the folder of `--kernels`, else from the
/// program. Returns the names of the file's kernels that run on a device.
pub(crate) fn install(file: &Path, sources: &Sources) -> Result<Vec<Cow<'static, str>>, Error> {
    let name = escape::path(file);
    let text = read_to_string(file).map_err(|e| Error::io(&name, e))?;
    let invalid = |e| Error::check(format!("{name}:{e}"));
    let value =
        json::parse(&text).map_err(|e| invalid(e.replacen(": ", ": not valid JSON: ", 1)))?;
    let (library, baked) = (baked::library(), baked::sources()?);
    let mut mistakes = Mistakes::default();
    let mut texts = |path: &str, place: &str, mistakes: &mut Mistakes| {
        let edited = sources
            .folder
            .as_ref()
            .map(|folder| folder.join(path))
            .filter(|file| file.exists());
        if let Some(file) = edited {
            let text = read_to_string(&file);
            let failed = |e| {
                mistakes.add(
                    place,
                    format_args!("cannot read {}: {e}", escape::path(&file)),
                )
            };
            return Some((escape::path(&file), text.map_err(failed).ok()?));
        }
        let known = baked.iter().find(|(source, _)| source == path);
        let text = known.map(|(_, text)| text.to_string());
        if text.is_none() {
            let expected =
                format!("expected its source {path} in the folder of --kernels, or in the program");
            mistakes.add(place, expected);
        }
        Some((format!("kernels/{path}"), text?))
    };
    let found = read::read(
        &LibraryFile {
            name: &name,
            text: &text,
            value: &value,
        },
        Some(&BaseLibrary {
            library,
            sources: baked,
        }),
        &mut texts,
        &[],
        &mut mistakes,
    );
    let Some(found) = found else {
        return Err(Error::check(mistakes.lines.join("\n")));
    };
    let kernels = found.library.kernels.iter();
    let own = kernels.filter(|k| k.source.is_some() && found.own.contains(&k.codename));
    let own: Vec<_> = own.map(|k| k.codename.clone()).collect();
    if own.is_empty() {
        return Err(Error::usage(format!(
            "--library {name}: expected a kernel with a source, which a device runs"
        )));
    }
    baked::put_library(found.library, found.sources);
    Ok(own)
}
