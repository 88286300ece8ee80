//! Two-dimensional images of four floats, halves or bytes per pixel.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use opencl_sys::*;

use super::error::{ClError, check, made};
use super::memory::{ALIGN, Access, Element, MapMode, MemoryObject, unmap};
use super::queue::Queue;

/// The number of values in a pixel.
const CHANNELS: usize = 4;

/// The type of a pixel's four values. Every device that has images supports all three types (OpenCL
/// 1.1, table of required formats of both profiles).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Float,
    /// Half precision. The host writes the 16 bits of each value as `u16`, and kernels read floats.
    Half,
    /// Signed bytes, which host and kernels see as whole numbers.
    Byte,
}

impl Channel {
    fn bytes(self) -> usize {
        match self {
            Channel::Float => 4,
            Channel::Half => 2,
            Channel::Byte => 1,
        }
    }
}

/// A 2D image with the channel order CL_RGBA. A clone stands for the same image.
#[derive(Clone)]
pub(crate) struct Image2d {
    memory: Arc<MemoryObject>,
    width: usize,
    height: usize,
    channel: Channel,
}

impl Image2d {
    /// Makes an image of `width` × `height` pixels on `queue`, with undefined contents. A kernel
    /// can read the image or write it, but not both (OpenCL 1.x). Errors contain `name`.
    pub(crate) fn new(
        queue: &Queue,
        name: &str,
        width: usize,
        height: usize,
        channel: Channel,
        access: Access,
    ) -> Result<Image2d, ClError> {
        const CALL: &str = "clCreateImage";
        let (most_wide, most_high) = queue.device().image2d_max;
        if !queue.device().images {
            return Err(ClError::new(CALL, CL_INVALID_OPERATION, name)
                .detail("the device does not support images"));
        }
        if !(1..=most_wide).contains(&width) || !(1..=most_high).contains(&height) {
            return Err(
                ClError::new(CALL, CL_INVALID_IMAGE_SIZE, name).detail(format!(
                    "{width} x {height} pixels; the device allows {most_wide} x {most_high}"
                )),
            );
        }
        let (data_type, values) = match channel {
            Channel::Float => (CL_FLOAT, "floats"),
            Channel::Half => (CL_HALF_FLOAT, "halves"),
            Channel::Byte => (CL_SIGNED_INT8, "bytes"),
        };
        let format = cl_image_format {
            image_channel_order: CL_RGBA,
            image_channel_data_type: data_type,
        };
        let flags = access.flags() | CL_MEM_ALLOC_HOST_PTR;
        let mut code = CL_SUCCESS;
        let raw = create(queue, flags, &format, width, height, &mut code);
        made(raw, code, CALL, name)
            .map_err(|e| e.detail(format!("{width} x {height} pixels of four {values}")))?;
        Ok(Image2d {
            memory: MemoryObject::new(queue, raw, name, None),
            width,
            height,
            channel,
        })
    }

    pub(super) fn memory(&self) -> &Arc<MemoryObject> {
        &self.memory
    }

    /// Writes the whole image. `values` has the rows one after the other, with four values for each
    /// pixel.
    ///
    /// # Panics
    /// If `values` is not as long as the image needs, or `T` does not have the size of its values.
    pub(crate) fn upload<T: Element>(&self, values: &[T]) -> Result<(), ClError> {
        let line = self.width * CHANNELS;
        assert!(values.len() == line * self.height);
        let mut mapped = self.map(MapMode::Overwrite)?;
        values
            .chunks_exact(line)
            .enumerate()
            .for_each(|(y, row)| mapped.row_mut(y).copy_from_slice(row));
        mapped.unmap()
    }

    /// Maps the image for the host. Waits for all earlier commands of the image's queue.
    pub(crate) fn map(&self, mode: MapMode) -> Result<MappedImage, ClError> {
        const CALL: &str = "clEnqueueMapImage";
        let name = self.memory.name();
        let queue = self.memory.queue();
        let lock = queue.lock_maps();
        self.memory.free_for(CALL, &lock)?;
        let (origin, region) = ([0; 3], [self.width, self.height, 1]);
        let (mut row_pitch, mut slice_pitch, mut code) = (0, 0, CL_SUCCESS);
        // SAFETY: the region is the whole image and nothing else of it is mapped; the call waits.
        let pointer = unsafe {
            (queue.api().clEnqueueMapImage)(
                queue.raw(),
                *self.memory.raw(),
                CL_TRUE,
                mode.flags(queue),
                origin.as_ptr(),
                region.as_ptr(),
                &mut row_pitch,
                &mut slice_pitch,
                0,
                ptr::null(),
                ptr::null_mut(),
                &mut code,
            )
        };
        check(code, CALL, name)?;
        let sound = !pointer.is_null()
            && pointer.addr() % ALIGN == 0
            && row_pitch % ALIGN == 0
            && row_pitch >= self.width * CHANNELS * self.channel.bytes();
        if !sound {
            return Err(ClError::new(CALL, CL_MAP_FAILURE, name).detail(format!(
                "expected multiples of {ALIGN} and at least {} bytes per row, the driver returned \
                 the address {pointer:?} and {row_pitch} bytes per row",
                self.width * CHANNELS * self.channel.bytes()
            )));
        }
        self.memory.set_mapped(true, &lock);
        Ok(MappedImage {
            image: self.clone(),
            pointer: pointer.cast(),
            row_pitch,
            mode,
        })
    }
}

/// Creates an image with clCreateImage (OpenCL 1.2), or with clCreateImage2D if the device or the
/// library has only OpenCL 1.1.
fn create(
    queue: &Queue,
    flags: cl_mem_flags,
    format: &cl_image_format,
    width: usize,
    height: usize,
    code: &mut i32,
) -> cl_mem {
    let (context, no_host) = (queue.context().raw(), ptr::null_mut());
    let newer = queue.api().clCreateImage;
    match newer.filter(|_| queue.device().has_1_2()) {
        Some(create) => {
            let shape = cl_image_desc {
                image_type: CL_MEM_OBJECT_IMAGE2D,
                image_width: width,
                image_height: height,
                image_depth: 0,
                image_array_size: 0,
                image_row_pitch: 0,
                image_slice_pitch: 0,
                num_mip_levels: 0,
                num_samples: 0,
                buffer: ptr::null_mut(),
            };
            // SAFETY: format and shape are valid for the call; there is no host pointer.
            unsafe { create(context, flags, format, &shape, no_host, code) }
        }
        None => {
            let create = queue.api().clCreateImage2D;
            // SAFETY: the format is valid for the call; there is no host pointer.
            unsafe { create(context, flags, format, width, height, 0, no_host, code) }
        }
    }
}

impl fmt::Debug for Image2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Image2d({}, {} x {})",
            self.memory.name(),
            self.width,
            self.height
        )
    }
}

/// An image mapped for the host. The map ends with [`MappedImage::unmap`] or drop. Until then no
/// kernel that uses the image can be launched.
pub(crate) struct MappedImage {
    image: Image2d,
    /// The start of the mapped image in host memory. Null after the unmap.
    pointer: *mut u8,
    row_pitch: usize,
    mode: MapMode,
}

impl MappedImage {
    /// Returns the 4 · width values of row `y`: `f32`, `u16` for halves, or `i8`.
    ///
    /// # Panics
    /// If the image has no row `y`, or `T` does not have the size of the image's values.
    #[cfg(test)]
    pub(crate) fn row<T: Element>(&self, y: usize) -> &[T] {
        let first = self.first(y);
        // SAFETY: the row lies in the mapped region. Its values have the size of `T` and are
        // aligned, which `map` checks. The map lasts as long as `self` and is the only one, and
        // kernels are refused meanwhile.
        unsafe { std::slice::from_raw_parts(first, self.image.width * CHANNELS) }
    }

    /// Returns the values of row `y`, for the host to write.
    ///
    /// # Panics
    /// If the image has no row `y`, `T` does not have the size of its values, or it is mapped to be
    /// read.
    pub(crate) fn row_mut<T: Element>(&mut self, y: usize) -> &mut [T] {
        assert!(
            self.mode != MapMode::Read,
            "{} is mapped to be read only",
            self.image.memory.name()
        );
        let first = self.first(y);
        // SAFETY: as for `row`. `&mut self` makes it the only view, and the mode allows writing.
        unsafe { std::slice::from_raw_parts_mut(first, self.image.width * CHANNELS) }
    }

    fn first<T: Element>(&self, y: usize) -> *mut T {
        assert!(y < self.image.height, "row {y} of {}", self.image.height);
        assert!(size_of::<T>() == self.image.channel.bytes());
        // SAFETY: rows 0 to height - 1 lie within the mapped region.
        unsafe { self.pointer.add(y * self.row_pitch).cast() }
    }

    /// Unmaps the image and returns the driver's error, which drop would ignore.
    pub(crate) fn unmap(mut self) -> Result<(), ClError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), ClError> {
        let pointer = std::mem::replace(&mut self.pointer, ptr::null_mut());
        if pointer.is_null() {
            return Ok(());
        }
        let memory = &self.image.memory;
        let lock = memory.queue().lock_maps();
        unmap(memory, pointer, None, &lock)
    }
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

impl fmt::Debug for MappedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MappedImage({:?}, {} bytes per row)",
            self.image, self.row_pitch
        )
    }
}
