//! The kernel library as bytes: how the build writes it and the program reads it back at its first use.
//!
//! Numbers are LEB128, floats their eight bytes, text and lists follow their length, enums are an index. Writer and
//! reader are always of the same build, so there are no versions, and [`Reader`] trusts its bytes.

use super::{
    Covered, Covers, DeviceClass, EngineKind, Kernel, Library, Most, Needs, Operand, Operation, PlanRecipe,
    Restrictions,
};
use crate::ir::layout::{Chunk, Layout, Order};
use std::borrow::Cow;

/// Bytes that are read from the front.
pub struct Reader(pub &'static [u8]);

impl Reader {
    fn bytes(&mut self, n: usize) -> &'static [u8] {
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        head
    }
}

/// A type with a form as bytes.
pub trait Wire: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads what `put` wrote.
    fn take(from: &mut Reader) -> Self;
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest > 0x7f {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut Reader) -> Self {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = from.bytes(1)[0];
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as usize).put(out);
    }

    fn take(from: &mut Reader) -> Self {
        usize::take(from) as u32
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut Reader) -> Self {
        from.bytes(1)[0] != 0
    }
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn take(from: &mut Reader) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(from.bytes(8));
        f64::from_le_bytes(bytes)
    }
}

impl Wire for Cow<'static, str> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend(self.as_bytes());
    }

    fn take(from: &mut Reader) -> Self {
        let n = usize::take(from);
        Cow::Borrowed(std::str::from_utf8(from.bytes(n)).unwrap_or_default())
    }
}

impl<T: Wire + Clone> Wire for Cow<'static, [T]> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut Reader) -> Self {
        let n = usize::take(from);
        Cow::Owned((0..n).map(|_| T::take(from)).collect())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut Reader) -> Self {
        bool::take(from).then(|| T::take(from))
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader) -> Self {
        let a = A::take(from);
        (a, B::take(from))
    }
}

/// A struct is its fields in this order; a field that is missing here does not compile.
macro_rules! fields {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut Reader) -> Self {
                $(let $field = Wire::take(from);)*
                $type { $($field),* }
            }
        }
    )*};
}

/// An enum is its index in this list; a variant that is missing here does not compile.
macro_rules! variants {
    ($($type:ident: $($variant:ident),*;)*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let all = [$($type::$variant),*];
                let checked = match self {
                    $($type::$variant => *self,)*
                };
                out.push(all.iter().position(|v| *v == checked).unwrap_or(0) as u8);
            }

            fn take(from: &mut Reader) -> Self {
                [$($type::$variant),*][usize::from(from.bytes(1)[0])]
            }
        }
    )*};
}

variants! {
    Order: R, C;
    EngineKind: Host, OpenCl;
    Covered: Affine, Activation, Sigmoid, Relu, Tanh;
    Operation: Matmul, Bias, Affine, Reduce, Pair, Layers, Sigmoid, Relu, Tanh, Repack, ArgMax, Sobel, Order, Probe;
}

fields! {
    Chunk { rows, cols, order }
    Layout { outer, chunks }
    Operand { representation, row_align, col_align, image }
    Most { h, l, weights, layers, groups }
    Covers { chain, repeated }
    Needs { host, images, local_bytes }
    Restrictions { arglist, scaled, scale, columns_first, guarded, a, b, r, half, flop, work_group, sweep, needs, tile, most, split }
    Kernel { codename, aliases, about, document, operation, covers, epilogue, function, source, defines, lab_options, restrictions }
    PlanRecipe { name, about, engine, batch, kernels, groups }
    DeviceClass { name, cpu, matches, compute_capability, plan, launch_us, gflops, flop_per_cycle }
    Library { hash, kernels, plans, devices, hosts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken() {
        let library = Library {
            hash: "12".into(),
            kernels: vec![Kernel {
                codename: "matmul_größer".into(),
                aliases: vec!["other".into()].into(),
                about: "".into(),
                document: "thesis §7".into(),
                operation: Operation::Probe,
                covers: Covers {
                    chain: vec![(Covered::Affine, false), (Covered::Tanh, true)].into(),
                    repeated: true,
                },
                epilogue: vec![Covered::Relu].into(),
                function: "größer".into(),
                source: Some("matmul/größer.cl".into()),
                defines: vec![("TILE".into(), 300)].into(),
                lab_options: "-cl-mad-enable".into(),
                restrictions: Restrictions {
                    arglist: "lh".into(),
                    scaled: true,
                    scale: (0, 70_000),
                    columns_first: true,
                    guarded: true,
                    a: Some(Operand {
                        representation: Layout::parse("R_8_8_C_4_2_R").ok(),
                        row_align: 127,
                        col_align: 128,
                        image: true,
                    }),
                    b: None,
                    r: None,
                    half: true,
                    flop: 2,
                    work_group: Some((4, 16)),
                    sweep: vec![(1, 1), (64, 2)].into(),
                    needs: Needs { host: false, images: true, local_bytes: usize::MAX },
                    tile: Some((128, 100)),
                    most: Most { h: 1, l: 2, weights: 3, layers: 4, groups: 5 },
                    split: 4,
                },
            }]
            .into(),
            plans: vec![].into(),
            devices: vec![DeviceClass {
                name: "d".into(),
                cpu: true,
                matches: vec![].into(),
                compute_capability: Some((12, 1)),
                plan: "p".into(),
                launch_us: 0.25,
                gflops: 1e300,
                flop_per_cycle: 0.5,
            }]
            .into(),
            hosts: vec![].into(),
        };
        let mut bytes = Vec::new();
        library.put(&mut bytes);
        let mut reader = Reader(bytes.leak());
        assert_eq!(Library::take(&mut reader), library);
        assert!(reader.0.is_empty());
    }
}
