//! What was appended to the program's own file.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// The program's file: as the kernel holds it, or where there is no /proc by the name that it was
/// started by.
pub(crate) fn file() -> io::Result<File> {
    File::open("/proc/self/exe").or_else(|_| {
        // SAFETY: the kernel passes a string that stays, or nothing.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        if name.is_null() {
            return Err(io::Error::other(
                "neither /proc nor the name of the program's file is there",
            ));
        }
        // SAFETY: as above: it is one, and it ends with 0.
        let name = unsafe { CStr::from_ptr(name) };
        File::open(std::ffi::OsStr::from_bytes(name.to_bytes()))
    })
}

/// All of `file` from `offset` on, a multiple of the page, `bytes` of them; it stays mapped for the
/// whole run.
pub(crate) fn map(file: &File, offset: u64, bytes: u64) -> io::Result<&'static [u8]> {
    let wide = || io::Error::other("it is too large");
    let length = usize::try_from(bytes).map_err(|_| wide())?;
    let offset = offset.try_into().map_err(|_| wide())?;
    // SAFETY: a new mapping, nowhere in particular; the arguments are checked by the kernel.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            offset,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: so many bytes are mapped there, and never unmapped. Who writes into the file of a
    // running program changes what it computes (the kernel refuses that for the program's own
    // file).
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}
