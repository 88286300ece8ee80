//! Kernel sources: the baked files, or files of the same names in a folder (`--kernels DIR`). With
//! a folder, a kernel can be edited and tried on the board without a build.

use crate::baked;
use crate::error::Error;
use crate::escape;
use crate::registry::Kernel;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The place that kernel sources come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The folder of `--kernels`. Files that the folder lacks are taken from the baked ones.
    pub(crate) folder: Option<PathBuf>,
    /// True if programs are always compiled, and neither read from the cache folder nor stored in
    /// it.
    pub(crate) uncached: bool,
    /// True after this value or any clone of it has read a file of the folder.
    read: Arc<AtomicBool>,
}

impl Sources {
    /// Returns a clone that always compiles.
    pub(crate) fn uncached(&self) -> Sources {
        Sources {
            uncached: true,
            ..self.clone()
        }
    }

    /// Returns the text to compile for `kernel`. It has the files that the kernels of its operation
    /// share, then the kernel's own source, which is checked against its registry entry. A `#line`
    /// before each file names the file in compiler logs.
    pub(crate) fn text(&self, kernel: &Kernel) -> Result<String, Error> {
        let (name, text) = self.file(kernel, kernel.source.as_deref().unwrap_or_default())?;
        kernel
            .check_source(&text)
            .map_err(|e| Error::device(format!("{name}: {e}")))?;
        let mut all = String::new();
        for common in kernel.common() {
            let (name, text) = self.file(kernel, common)?;
            push(&mut all, &name, &text);
        }
        push(&mut all, &name, &text);
        Ok(all)
    }

    /// Returns the name for compiler logs and the text of the source file `path` of `kernel`.
    /// `path` is relative to `kernels/`. A file in the folder of `--kernels` replaces the baked
    /// one.
    fn file(&self, kernel: &Kernel, path: &str) -> Result<(String, Cow<'static, str>), Error> {
        let edited = self
            .folder
            .as_ref()
            .map(|folder| folder.join(path))
            .filter(|file| file.exists());
        Ok(match &edited {
            Some(file) => {
                let text =
                    std::fs::read_to_string(file).map_err(|e| Error::io(escape::path(file), e))?;
                self.read.store(true, Relaxed);
                (escape::path(file), Cow::Owned(text))
            }
            None => {
                let text = baked::sources()?
                    .iter()
                    .find(|(name, _)| name == path)
                    .map(|(_, text)| &**text);
                let missing = || {
                    Error::device(format!(
                        "{}: its source {path} was not baked",
                        kernel.codename
                    ))
                };
                (
                    format!("kernels/{path}"),
                    Cow::Borrowed(text.ok_or_else(missing)?),
                )
            }
        })
    }

    /// Checks that the folder of `--kernels` has at least one kernel source. Otherwise a mistyped
    /// folder would look like an edit that changes nothing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let sources = baked::sources()?.iter().map(|(name, _)| &**name);
        if sources.clone().any(|path| folder.join(path).exists()) {
            return Ok(());
        }
        let example = sources.into_iter().next().unwrap_or_default();
        Err(Error::usage(format!(
            "--kernels {}: expected kernel sources under their names below kernels/, for example \
             {example}",
            escape::path(folder)
        )))
    }

    /// Checks that the folder of `--kernels` has a source of one of `kernels`. These are the
    /// kernels that `user` runs, the name of a plan or command for messages. An edited kernel that
    /// does not run must not look like an edit that changes nothing.
    pub(crate) fn check_for<'k>(
        &self,
        user: &str,
        kernels: impl IntoIterator<Item = &'k Kernel>,
    ) -> Result<(), Error> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let edited = |k: &Kernel| {
            let own = k.source.iter().any(|path| folder.join(&**path).exists());
            own || k.common().any(|path| folder.join(path).exists())
        };
        if kernels.into_iter().any(edited) {
            Ok(())
        } else {
            Err(unread(folder, user))
        }
    }

    /// Checks that at least one file in the folder of `--kernels` was read, if there is a folder.
    /// `user` is the name of the plan, for the error.
    pub(crate) fn check_read(&self, user: &str) -> Result<(), Error> {
        match &self.folder {
            Some(folder) if !self.read.load(Relaxed) => Err(unread(folder, user)),
            _ => Ok(()),
        }
    }
}

fn unread(folder: &Path, user: &str) -> Error {
    let sources = baked::sources()
        .into_iter()
        .flat_map(|all| all.iter())
        .map(|(name, _)| &**name);
    let found: Vec<&str> = sources.filter(|path| folder.join(path).exists()).collect();
    Error::usage(format!(
        "--kernels {}: {user} runs none of its kernels ({}); name what does (--plan, or a kernel \
         of bench)",
        escape::path(folder),
        found.join(", ")
    ))
}

/// Appends a file to `all`, after a `#line` that names it.
fn push(all: &mut String, name: &str, text: &str) {
    *all += &format!(
        "#line 1 \"{}\"\n{text}",
        name.replace(['"', '\\', '\n'], "_")
    );
    if !all.ends_with('\n') {
        all.push('\n');
    }
}
