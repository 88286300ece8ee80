//! Converts the kernel library to bytes for the baked block, and back.

use super::{
    Covered, CoveredNode, Covers, Define, DeviceClass, FewRecords, Kernel, LeadingArgument,
    Library, Most, Needs, Operand, PlanRecipe, Restrictions,
};
use crate::ir::wire::{fields, variants};

variants! {
    LeadingArgument {
        Depth, Width, Height, Rows, Middle, Second, Parts, Params, Geometry, Value, Moved, Added,
        Product, Factors
    }
    Covered {
        Affine, Convolution, Dense, Depthwise, Pool, Scale, Combine, Add, Softmax, Activation,
        Function, Only(activation), Resample, Product, Rescale
    }
}

fields! {
    Operand { representation, row_align, col_align, image, panels }
    Most { h, l, weights, layers, groups, spread }
    CoveredNode { node, optional }
    Covers { chain, repeated }
    Define { name, value }
    Needs { host, images, warp, local_bytes }
    Restrictions {
        args, scaled, scale, columns_first, guarded, a, b, r, half, bytes, flop, work_group,
        sweep, needs, tile, most, least_l, split, keeps
    }
    Kernel {
        codename, aliases, about, document, operation, covers, epilogue, function, source, defines,
        lab_options, restrictions
    }
    PlanRecipe { name, about, engine, batch, kernels, few, groups, without_lab }
    FewRecords { records, kernels }
    DeviceClass {
        name, cpu, matches, compute_capability, plan, launch_us, gflops, flop_per_cycle,
        stops_after_failure
    }
    Library { hash, kernels, plans, devices, hosts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::layout::Layout;
    use crate::ir::op::Activation;
    use crate::ir::wire::{self, Damaged};
    use crate::registry::Operation;

    fn kernel() -> Kernel {
        let node = |node, optional| CoveredNode { node, optional };
        Kernel {
            codename: "matmul_größer".into(),
            aliases: vec!["other".into()].into(),
            about: "".into(),
            document: "thesis §7".into(),
            operation: Operation::Probe,
            covers: Covers {
                chain: vec![
                    node(Covered::Affine, false),
                    node(Covered::Only(Activation::Tanh), true),
                ]
                .into(),
                repeated: true,
            },
            epilogue: vec![Covered::Only(Activation::Relu)].into(),
            function: "größer".into(),
            source: Some("matmul/größer.cl".into()),
            defines: vec![Define {
                name: "TILE".into(),
                value: 300,
            }]
            .into(),
            lab_options: "-cl-mad-enable".into(),
            restrictions: Restrictions {
                args: vec![LeadingArgument::Depth, LeadingArgument::Height].into(),
                scaled: true,
                scale: (0, 70_000),
                columns_first: true,
                guarded: true,
                a: Some(Operand {
                    representation: Layout::parse("R_8_8_C_4_2_R").ok(),
                    row_align: 127,
                    col_align: 128,
                    image: true,
                    panels: true,
                }),
                b: None,
                r: None,
                half: true,
                bytes: true,
                flop: 2,
                work_group: Some((4, 16)),
                sweep: vec![(1, 1), (64, 2)].into(),
                needs: Needs {
                    host: false,
                    images: true,
                    warp: true,
                    local_bytes: usize::MAX,
                },
                tile: Some((128, 100)),
                most: Most {
                    h: 1,
                    l: 2,
                    weights: 3,
                    layers: 4,
                    groups: 5,
                    spread: 6,
                },
                least_l: 8,
                split: 4,
                keeps: 5,
            },
        }
    }

    #[test]
    fn what_was_put_is_taken() {
        let library = Library {
            hash: "12".into(),
            kernels: vec![kernel()].into(),
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
                stops_after_failure: true,
            }]
            .into(),
            hosts: vec![].into(),
        };
        let bytes = wire::bytes(&library).leak();
        assert_eq!(wire::value::<Library>(bytes), Ok(library));
        for n in 0..bytes.len() {
            assert_eq!(
                wire::value::<Library>(&bytes[..n]),
                Err(Damaged),
                "{n} bytes"
            );
        }
        // Changed bytes must be read or refused without a panic.
        for i in 0..bytes.len() {
            for bit in [1, 0x80] {
                let mut changed = bytes.to_vec();
                changed[i] ^= bit;
                let _ = wire::value::<Library>(changed.leak());
            }
        }
    }
}
