//! Converts plain data to bytes and back. The build writes networks, plans and the kernel library
//! with it, and the finished program reads them.
//!
//! The bytes are the same on every machine. Numbers are little-endian. A size is in LEB128: seven
//! bits a byte, the lowest first, and the eighth bit is set if another byte follows. The variant of
//! an enum is one byte. Texts and lists begin with their length. Reading never panics, but returns
//! [`Damaged`] for bytes that hold no valid data.

use std::borrow::Cow;

/// The error for bytes that do not encode a value of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Reads encoded values one after the other. The field holds the bytes that are still unread.
pub(crate) struct ByteReader(pub(crate) &'static [u8]);

impl ByteReader {
    fn bytes(&mut self, n: usize) -> Result<&'static [u8], Damaged> {
        let ByteReader(rest) = self;
        let (head, tail) = rest.split_at_checked(n).ok_or(Damaged)?;
        *rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.bytes(N)?.try_into().map_err(|_| Damaged)
    }
}

/// A type whose values can be written as bytes and read back.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes a value that `put` encoded, and removes its bytes from `from`.
    ///
    /// # Errors
    /// The bytes end too early, or do not encode a value of this type.
    fn take(from: &mut ByteReader) -> Result<Self, Damaged>;
}

/// Returns the encoded bytes of `value`.
pub(crate) fn bytes(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Decodes a value that takes up all of `bytes`.
///
/// # Errors
/// The bytes do not encode a value of this type, or more bytes follow it.
pub(crate) fn value<T: Wire>(bytes: &'static [u8]) -> Result<T, Damaged> {
    let mut reader = ByteReader(bytes);
    let value = T::take(&mut reader)?;
    let ByteReader(rest) = reader;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(Damaged)
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
                Ok(<$type>::from_le_bytes(from.array()?))
            }
        }
    )*};
}

numbers! { u8, u32, u64, f32, f64 }

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest > 0x7f {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = u8::take(from)?;
            let bits = usize::from(byte & 0x7f);
            // A size is damaged if it has more bits than a `usize` of this machine, or if it ends
            // with a needless byte of 0.
            if shift >= usize::BITS || bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(Damaged);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }
}

impl Wire for Cow<'static, str> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend(self.as_bytes());
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        let n = usize::take(from)?;
        std::str::from_utf8(from.bytes(n)?)
            .map(Cow::Borrowed)
            .map_err(|_| Damaged)
    }
}

impl<T: Wire + Clone> Wire for Cow<'static, [T]> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        let n = usize::take(from)?;
        // Every item takes at least one byte. So a length above the number of remaining bytes is
        // refused before any memory is allocated.
        if n > from.0.len() {
            return Err(Damaged);
        }
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(T::take(from)?);
        }
        Ok(Cow::Owned(items))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

impl<T: Wire> Wire for [T; 3] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        Ok([T::take(from)?, T::take(from)?, T::take(from)?])
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        let (a, b) = self;
        a.put(out);
        b.put(out);
    }

    fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
        let a = A::take(from)?;
        Ok((a, B::take(from)?))
    }
}

/// Implements `Wire` for structs. A struct is encoded as its fields, in the order that the macro
/// call lists them. A call that omits a field does not compile.
macro_rules! fields {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::ir::wire::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(
                from: &mut $crate::ir::wire::ByteReader,
            ) -> Result<Self, $crate::ir::wire::Damaged> {
                $(let $field = $crate::ir::wire::Wire::take(from)?;)*
                Ok($type { $($field),* })
            }
        }
    )*};
}

/// Implements `Wire` for enums. A value is encoded as the index of its variant in the macro call,
/// followed by the variant's fields. A call that omits a variant does not compile.
macro_rules! variants {
    ($($type:ident {
        $($variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)?
    })*) => {$(
        impl $crate::ir::wire::Wire for $type {
            #[allow(unused_assignments)]
            fn put(&self, out: &mut Vec<u8>) {
                let mut index = 0u8;
                $(
                    if let $type::$variant $(($inner))? $({ $($field),* })? = self {
                        out.push(index);
                        $($inner.put(out);)?
                        $($($field.put(out);)*)?
                    }
                    index += 1;
                )*
                // This `match` does not compile if the macro call omits a variant.
                match self {
                    $($type::$variant $(($inner))? $({ $($field),* })? => {
                        $(let _ = $inner;)?
                        $($(let _ = $field;)*)?
                    })*
                }
            }

            #[allow(unused_assignments)]
            fn take(
                from: &mut $crate::ir::wire::ByteReader,
            ) -> Result<Self, $crate::ir::wire::Damaged> {
                let found = <u8 as $crate::ir::wire::Wire>::take(from)?;
                let mut index = 0u8;
                $(
                    if found == index {
                        $(let $inner = $crate::ir::wire::Wire::take(from)?;)?
                        $($(let $field = $crate::ir::wire::Wire::take(from)?;)*)?
                        return Ok($type::$variant $(($inner))? $({ $($field),* })?);
                    }
                    index += 1;
                )*
                Err($crate::ir::wire::Damaged)
            }
        }
    )*};
}

pub(crate) use {fields, variants};

mod data {
    use crate::ir::graph::{Graph, Node, Role, Shape, Tensor, Value};
    use crate::ir::layout::{Chunk, Layout, Order};
    use crate::ir::network::{
        ByteInput, FinalActivation, InputOrder, Kind, Network, Output, Precision, Range, Transform,
    };
    use crate::ir::op::{
        Activation, Arithmetic, Axis, Border, Float, OfChannels, Op, Operation, Padding, Pool,
        Window,
    };
    use crate::ir::options::{Function, LayerOptions, LayersOptions, Places, StepOptions};
    use crate::ir::plan::{
        Arg, Buffer, BufferRole, Constant, EngineKind, Extent, Few, Placing, Plan, Problem,
        Rescaling, Step,
    };
    use crate::ir::product::{Product, Strides};
    use crate::ir::view::{Geometry, Image, Moved, RowMap};
    use crate::ir::wire::{ByteReader, Damaged, Wire};

    variants! {
        Order { R, C }
        Role { Weights, Biases, Factors, Taps }
        Placing { Plain, Columns(map) }
        InputOrder { Chw, Hwc }
        Kind { Classes, Binary, Multilabel, Values }
        FinalActivation { Softmax, Sigmoid, Tanh, None }
        Transform { Identity, ScaleOffset { scale, offset }, MeanStd { mean, std } }
        Precision { F32, F16, I8 }
        Op {
            Affine, Convolution { window, groups }, Pool { kind, window }, Activation(function),
            PRelu, Scale, Combine(arithmetic), Concat(axis), Pad { padding, value }, OfChannels(of),
            Reshape(shape), Transpose(axes), Slice { axis, first, size },
            Resample { height, width, taps }, Product { transposed }
        }
        Pool { Max, Mean, PaddedMean }
        Axis { C, Y, X }
        Arithmetic {
            Add, Subtract, Multiply, Divide, Maximum, Minimum, RoundedSum { a, b }
        }
        OfChannels { Softmax, LogSoftmax, IntegerSoftmax(factor), ByteSteps }
        Operation {
            Matmul, Bias, Affine, Reduce, Pair, ReducePair, Layers, Convolution, Pool, Sigmoid,
            Relu, Activation, Scale, Combine, Softmax, Gather, Repack, ArgMax, Sobel, Order, Probe,
            Resample, Product
        }
        EngineKind { Host, OpenCl }
        Function { Only, Pool(kind), PRelu, Combine(arithmetic), OfChannels(of) }
        Places { Fixed, Alike, Levels { from, to } }
        BufferRole { Input, Hidden, Scores, Classes }
        Extent { Fixed(items), Records { records, items }, Columns { columns, tile, group } }
        Arg {
            Size(value), Scalar(value), Pair(values), Geometry(geometry), Moved(moved),
            Constant(index), Buffer(index), Constants, Product(product)
        }
    }

    /// An activation is encoded as its code, followed by its two parameters.
    impl Wire for Activation {
        fn put(&self, out: &mut Vec<u8>) {
            (self.code() as u8).put(out);
            self.parameters().into_iter().for_each(|p| p.put(out));
        }

        fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
            let code = u8::take(from)?;
            let parameters = [f32::take(from)?, f32::take(from)?];
            let kind = Activation::of_code(code.into()).ok_or(Damaged)?;
            let found = kind.with(parameters);
            // A parameter that the activation does not have is 0. NaN is compared by its bits.
            let bits = |parameters: [f32; 2]| parameters.map(f32::to_bits);
            let whole = bits(found.parameters()) == bits(parameters);
            whole.then_some(found).ok_or(Damaged)
        }
    }

    impl Wire for Float {
        fn put(&self, out: &mut Vec<u8>) {
            self.get().put(out);
        }

        fn take(from: &mut ByteReader) -> Result<Self, Damaged> {
            f32::take(from).map(Float::new)
        }
    }

    fields! {
        Chunk { rows, cols, order }
        Layout { outer, chunks }
        Shape { c, h, w }
        RowMap { first, loops }
        Moved { from, to, filled }
        Strides { first, steps }
        Product { groups, rows, columns, terms, a, b }
        Image { first, pixel, line }
        Geometry { input, output, window, groups }
        Border { top, left, bottom, right }
        Padding { before, behind }
        Window { size, stride, dilation, border, ceil }
        Value { name, shape }
        Tensor { name, role, rows, cols, map, spread }
        Node { name, op, inputs, tensors, output }
        Graph { values, tensors, nodes, inputs, outputs }
        Output { kind, activation, threshold }
        Range { up_to, near }
        ByteInput { signed, scale, first }
        Network {
            name, hash, width, order, graph, output, labels, features, transform, bytes, folded,
            weights, tolerance, inputs, outputs
        }
        Rescaling { factors, summands }
        Constant {
            name, tensor, scales, rescale, role, placing, size, padded, layout, precision, image
        }
        Buffer { name, role, rows, map, padded_rows, layout, arena }
        Problem { h, w, l }
        StepOptions {
            function, adds, rescales, rounds, places, row_step, panel, kept, layers
        }
        LayersOptions { classes, hidden, rows, width, each }
        LayerOptions { columns, terms, groups, activation, weights, biases, start, panel }
        Step { node, operation, kernel, activation, options, args, global, local, problem, flop }
        Plan {
            name, engine, batch, padded_batch, granule, constants, buffers, arena_bytes,
            arena_bound, steps, few
        }
        Few { records, first, granule }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Wire>(bytes: &[u8]) -> Result<T, Damaged> {
        value(Box::leak(bytes.into()))
    }

    #[test]
    fn sizes_take_the_bytes_that_they_need() {
        for (size, expected) in [
            (0usize, &[0][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 1]),
            (0x3fff, &[0xff, 0x7f]),
            (0x4000, &[0x80, 0x80, 1]),
        ] {
            assert_eq!(bytes(&size), expected);
        }
        for size in (0..usize::BITS).flat_map(|n| [1 << n, (1 << n) - 1, usize::MAX >> n]) {
            assert_eq!(read(&bytes(&size)), Ok(size));
        }
        // These bytes are no valid size: a byte is missing, the last byte is a needless 0, or there
        // are too many bits.
        for damaged in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0x80, 0x80, 0],
            &[0xff; 10],
            &[0xff; 64],
        ] {
            assert_eq!(read::<usize>(damaged), Err(Damaged), "{damaged:?}");
        }
    }

    /// A value is decoded as it was encoded. A missing or an additional byte is an error.
    fn comes_back<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let mut all = bytes(value);
        assert_eq!(read::<T>(&all).as_ref(), Ok(value));
        assert_eq!(
            read::<T>(&all[..all.len() - 1]),
            Err(Damaged),
            "{value:?}, cut"
        );
        all.push(0);
        assert_eq!(read::<T>(&all), Err(Damaged), "{value:?}, and more");
    }

    #[test]
    fn simple_values_come_back() {
        [0u8, 1, 255].iter().for_each(comes_back);
        [false, true].iter().for_each(comes_back);
        [Some(7usize), None].iter().for_each(comes_back);
        [f32::MIN_POSITIVE, -0.0, f32::INFINITY]
            .iter()
            .for_each(comes_back);
        comes_back(&Cow::Borrowed("a name, größer"));
        comes_back(&([1usize, 2, 300], 1e300f64));
        comes_back(&Cow::Borrowed(&[(1usize, 2u32), (3, 4)][..]));
        // Decoding fails for an unknown variant, a byte that is no boolean, text that is not UTF-8,
        // and a length above the remaining bytes.
        assert_eq!(read::<crate::ir::graph::Role>(&[4]), Err(Damaged));
        assert_eq!(read::<bool>(&[2]), Err(Damaged));
        assert_eq!(read::<Cow<'static, str>>(&[1, 0xff]), Err(Damaged));
        let bytes = read::<Cow<'static, [u8]>>(&[0xff, 0xff, 3, 1]);
        assert_eq!(bytes, Err(Damaged));
    }

    #[test]
    fn operations_come_back() {
        use crate::ir::graph::Shape;
        use crate::ir::op::{
            Activation, Arithmetic, Axis, Border, Float, OfChannels, Op, Padding, Pool, Window,
        };
        Activation::ALL.iter().for_each(comes_back);
        let border = Border {
            top: 1,
            left: 2,
            bottom: 3,
            right: 4,
        };
        let window = Window {
            stride: (2, 3),
            dilation: (4, 1),
            border,
            ceil: true,
            ..Window::of((5, 6))
        };
        let ops = [
            Op::Affine,
            Op::Convolution { window, groups: 3 },
            Op::Pool {
                kind: Pool::PaddedMean,
                window,
            },
            Op::Combine(Arithmetic::Divide),
            Op::Combine(Arithmetic::RoundedSum {
                a: Float::new(0.5),
                b: Float::new(-0.25),
            }),
            Op::Concat(Axis::X),
            Op::Slice {
                axis: Axis::Y,
                first: 2,
                size: 9,
            },
            Op::Pad {
                padding: Padding {
                    before: [5, 1, 2],
                    behind: [0, 3, 400],
                },
                value: Float::new(-0.5),
            },
            Op::OfChannels(OfChannels::LogSoftmax),
            Op::OfChannels(OfChannels::ByteSteps),
            Op::OfChannels(OfChannels::IntegerSoftmax(Float::new(0.125))),
            Op::Resample {
                height: 300,
                width: 1,
                taps: (4, 2),
            },
            Op::Product { transposed: true },
            Op::Reshape(Shape { c: 2, h: 200, w: 3 }),
            Op::Transpose([Axis::X, Axis::C, Axis::Y]),
        ];
        ops.iter().for_each(comes_back);
    }

    #[test]
    fn parts_of_steps_come_back() {
        use crate::ir::plan::{Arg, Extent, Placing};
        use crate::ir::product::{Product, Strides};
        use crate::ir::view::{Moved, RowMap};
        let map = RowMap {
            first: 3,
            loops: [(1, 0), (2, 4), (128, 1)],
        };
        comes_back(&Arg::Moved(Moved {
            from: map,
            to: RowMap::vector(9),
            filled: 500,
        }));
        let strides = |first| Strides {
            first,
            steps: [1, 200, 0],
        };
        comes_back(&Arg::Product(Product {
            groups: 2,
            rows: 1,
            columns: 500,
            terms: 3,
            a: strides(4),
            b: strides(500),
        }));
        comes_back(&Placing::Columns(map));
        comes_back(&Extent::Columns {
            columns: 1,
            tile: 2,
            group: 3,
        });
        comes_back(&[Arg::Size(3), Arg::Pair((0.5, 2.0)), Arg::Constants]);
    }
}
