//! The block of baked data that was appended to the program's own file.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// Opens the program's own file through /proc. Without /proc, opens it by the name with which the
/// program was started.
pub(crate) fn file() -> io::Result<File> {
    File::open("/proc/self/exe").or_else(|_| {
        // SAFETY: the kernel passes a string that lives as long as the process, or null.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        if name.is_null() {
            return Err(io::Error::other(
                "neither /proc nor the name of the program's file is there",
            ));
        }
        // SAFETY: the string is not null, ends with a zero and lives as long as the process.
        let name = unsafe { CStr::from_ptr(name) };
        File::open(std::ffi::OsStr::from_bytes(name.to_bytes()))
    })
}

/// Maps `bytes` bytes of `file` read-only, for the rest of the run. They begin at byte `offset` of
/// the file, which must be a multiple of the page size.
pub(crate) fn map(file: &File, offset: u64, bytes: u64) -> io::Result<&'static [u8]> {
    let wide = || io::Error::other("it is too large");
    let length = usize::try_from(bytes).map_err(|_| wide())?;
    let offset = offset.try_into().map_err(|_| wide())?;
    // SAFETY: a new mapping at an address of the kernel's choice. The kernel checks the arguments.
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
    // SAFETY: the bytes are mapped and never unmapped. A write to the file would change them, but
    // the kernel refuses writes to the file of a running program.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}
