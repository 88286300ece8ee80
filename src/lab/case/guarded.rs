//! Buffers that show when a kernel writes outside of them.

use crate::cl::{Access, Argument, BufferHome, ClBuffer, ClError, Element, Queue};

/// Bytes of each canary, the guard area before and after the contents of a buffer.
pub(super) const CANARY: usize = 4096;

/// The value of each byte of a canary.
const CANARY_BYTE: u8 = 0xA5;

/// A buffer between two canaries, which change if a kernel writes outside the contents. Without
/// canaries it is exactly as large as its contents, so that a simulator reports every access
/// outside.
pub(super) struct Guarded {
    /// The part of the buffer that holds the contents, without canaries.
    view: ClBuffer,
    /// The whole buffer: the contents and both canaries. `None` without canaries.
    parent: Option<ClBuffer>,
    bytes: usize,
}

impl Guarded {
    pub(super) fn new(
        queue: &Queue,
        name: &str,
        contents: &[u8],
        canaries: bool,
    ) -> Result<Guarded, ClError> {
        let bytes = contents.len().max(4);
        if !canaries {
            let view = ClBuffer::new(queue, name, bytes, Access::ReadWrite, BufferHome::Device)?;
            view.write(0, contents)?;
            return Ok(Guarded {
                view,
                parent: None,
                bytes,
            });
        }
        // One call writes the whole buffer. After a partial write, Oclgrind forgets which bytes of
        // the buffer are initialized.
        let mut all = vec![CANARY_BYTE; CANARY];
        all.extend_from_slice(contents);
        all.resize(CANARY + bytes.next_multiple_of(4) + CANARY, CANARY_BYTE);
        let parent = ClBuffer::new(
            queue,
            name,
            all.len(),
            Access::ReadWrite,
            BufferHome::Device,
        )?;
        parent.write(0, &all)?;
        let view = parent.sub_buffer(name, CANARY, bytes)?;
        Ok(Guarded {
            view,
            parent: Some(parent),
            bytes,
        })
    }

    /// Returns the buffer as the argument of a kernel that may touch `bytes` bytes of it.
    pub(super) fn argument(&self, bytes: usize) -> Argument<'_> {
        Argument::Buffer {
            buffer: &self.view,
            bytes,
        }
    }

    pub(super) fn read<T: Element + Default>(&self, count: usize) -> Result<Vec<T>, ClError> {
        let mut data = vec![T::default(); count];
        self.view.read(0, &mut data)?;
        Ok(data)
    }

    /// Returns true if the canaries are unchanged, or if there are none.
    pub(super) fn intact(&self) -> Result<bool, ClError> {
        let Some(parent) = &self.parent else {
            return Ok(true);
        };
        let mut all = vec![0u8; parent.bytes()];
        parent.read(0, &mut all)?;
        let around = all[..CANARY].iter().chain(&all[CANARY + self.bytes..]);
        Ok(around.copied().all(|b| b == CANARY_BYTE))
    }
}

/// Returns the name of the first buffer whose canaries changed. `None` if no buffer's did.
pub(super) fn written_outside<N: AsRef<str>>(
    buffers: &[(N, Guarded)],
) -> Result<Option<&str>, ClError> {
    for (name, buffer) in buffers {
        if !buffer.intact()? {
            return Ok(Some(name.as_ref()));
        }
    }
    Ok(None)
}
