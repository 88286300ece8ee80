//! Kernel sources: the baked ones, or those of a folder that has a file of the same name
//! (`--kernels DIR`), so that a kernel can be edited and tried on the board without a build.

use crate::baked;
use crate::error::Error;
use crate::escape;
use crate::registry::Kernel;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where kernel sources come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// `--kernels`; files that it does not have are the baked ones.
    pub(crate) folder: Option<PathBuf>,
    /// Always compiled: compiled programs are neither taken from the cache folder nor left there.
    pub(crate) uncached: bool,
    /// Whether a file of the folder was read, by whoever has a clone.
    read: Arc<AtomicBool>,
}

impl Sources {
    /// The same, always compiled.
    pub(crate) fn uncached(&self) -> Sources {
        Sources {
            uncached: true,
            ..self.clone()
        }
    }

    /// The source of `kernel`, checked against its entry of the library, behind what its
    /// operation's sources share. Each part begins with a line that names it in compiler logs.
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

    /// The name and text of a file below `kernels/` that `kernel` is made of.
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
                    .find(|s| s.0 == path)
                    .map(|s| &*s.1);
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

    /// Whether the folder exists and has at least one kernel of the library; a typing mistake must
    /// not look like a kernel that changes nothing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let sources = baked::sources()?.iter().map(|s| &*s.0);
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

    /// Whether the folder has a source of one of these kernels, which `user` runs: an edited kernel
    /// that does not run must not look like one that changes nothing.
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

    /// Whether a file of the folder was read for what `user` runs.
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
        .map(|s| &*s.0);
    let found: Vec<&str> = sources.filter(|path| folder.join(path).exists()).collect();
    Error::usage(format!(
        "--kernels {}: {user} runs none of its kernels ({}); name what does (--plan, or a kernel \
         of bench)",
        escape::path(folder),
        found.join(", ")
    ))
}

/// Adds a file with the line that names it.
fn push(all: &mut String, name: &str, text: &str) {
    *all += &format!(
        "#line 1 \"{}\"\n{text}",
        name.replace(['"', '\\', '\n'], "_")
    );
    if !all.ends_with('\n') {
        all.push('\n');
    }
}
