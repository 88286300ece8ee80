//! Stores large weight arrays that are equal only once, even if several layers use them. Unrolled
//! loops have such layers.

use crate::ir::graph::{Node, Role, Tensor, Tensors};
use crate::ir::network::Network;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Arrays with fewer numbers than this are not compared.
const LEAST: usize = 1 << 14;

/// Makes nodes with equal large weight arrays share one array, and removes the copies.
pub(super) fn share(network: &mut Network, tensors: &mut Tensors) {
    let graph = &mut network.graph;
    let mut kept: Vec<Tensor> = Vec::new();
    let mut numbers: Tensors = Vec::new();
    let mut alike: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut places = Vec::new();
    for (tensor, array) in graph.tensors.iter().zip(std::mem::take(tensors)) {
        let mut hasher = DefaultHasher::new();
        array.iter().for_each(|v| v.to_bits().hash(&mut hasher));
        // The arrays of element-wise operations are not shared, because plans look them up by the
        // name of their node.
        let large = tensor.role == Role::Weights && array.len() >= LEAST;
        let known = match large {
            true => alike.entry(hasher.finish()).or_default(),
            false => &mut Vec::new(),
        };
        let equal = |&at: &usize| {
            let Tensor { ref name, .. } = kept[at];
            let named = Tensor {
                name: name.clone(),
                ..tensor.clone()
            };
            let bits = |v: &f32| v.to_bits();
            named == kept[at] && numbers[at].iter().map(bits).eq(array.iter().map(bits))
        };
        let found = known.iter().copied().find(equal);
        places.push(found.unwrap_or_else(|| {
            known.push(kept.len());
            kept.push(tensor.clone());
            numbers.push(array);
            kept.len() - 1
        }));
    }
    let moved = |node: &Node| {
        let own = node.tensors.iter().map(|&t| places[t]);
        Node {
            tensors: own.collect::<Vec<_>>().into(),
            ..node.clone()
        }
    };
    graph.nodes = graph.nodes.iter().map(moved).collect::<Vec<_>>().into();
    graph.tensors = kept.into();
    *tensors = numbers;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baked;
    use crate::ir::graph::{Graph, Shape};
    use crate::ir::op::Op;

    #[test]
    fn equal_arrays_are_one() {
        let side = 128;
        let mut graph = Graph::new(Shape::vector(side));
        let arrays = [(Role::Weights, side, side), (Role::Biases, side, 1)];
        let first = graph.push("a", Op::Affine, &[0], &arrays).unwrap();
        let second = graph.push("b", Op::Affine, &[first], &arrays).unwrap();
        graph.push("c", Op::Affine, &[second], &arrays).unwrap();
        let mut network = Network {
            graph,
            ..baked::network().clone()
        };
        let weights = |first: f32| (0..side * side).map(move |i| first + i as f32);
        let mut tensors: Tensors = Vec::new();
        for first in [0.0, 1.0, 0.0] {
            tensors.push(weights(first).collect());
            tensors.push(vec![0.0; side]);
        }
        share(&mut network, &mut tensors);
        let of = |i: usize| network.graph.nodes[i].tensors.to_vec();
        assert_eq!([of(0), of(1), of(2)], [vec![0, 1], vec![2, 3], vec![0, 4]]);
        assert_eq!((tensors.len(), network.graph.tensors.len()), (5, 5));
        assert_eq!(tensors[2][0], 1.0);
    }
}
