//! tract: one thread of its own, or its executor for matrix products with as many as asked for.
//! Optimised for the batch at hand, or for one record, of which a batch is as many passes: the
//! faster of the two, since convolutions of batches take longer than those of their records.

use std::time::Instant;

use host_peers::{Failure, Forward, main as serve, version};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;
use tract_onnx::tract_hir::tract_core::internal::DimLike;

/// A forward pass in passes of so many records.
fn in_passes(path: &str, per_pass: usize, x: &[f32]) -> Result<Forward, Failure> {
    let model = onnx().model_for_path(path)?;
    let mut shape: Vec<usize> = vec![per_pass];
    for n in model.input_fact(0)?.shape.dims().skip(1) {
        shape.push(n.concretize().ok_or("a free dimension")?.to_usize()?);
    }
    let model = model.with_input_fact(0, f32::fact(&shape).into())?;
    let mut state = model.into_optimized()?.into_runnable()?.spawn()?;
    let parts = x
        .chunks_exact(shape.iter().product())
        .map(|part| Ok(Tensor::from_shape(&shape, part)?.into()));
    let parts = parts.collect::<Result<Vec<TValue>, Failure>>()?;
    let mut results: Vec<f32> = vec![];
    Ok(Box::new(move |take| {
        results.clear();
        for part in &parts {
            let y = state.run(tvec![part.clone()])?;
            let y = y[0].try_as_plain_ram()?;
            if parts.len() == 1 {
                take(y.as_slice::<f32>()?);
                return Ok(());
            }
            results.extend(y.as_slice::<f32>()?);
        }
        take(&results);
        Ok(())
    }))
}

fn load(path: &str, threads: usize, batch: usize, x: Vec<f32>) -> Result<Forward, Failure> {
    if threads > 1 {
        set_default_executor(Executor::multithread(threads));
    }
    if batch == 1 {
        return in_passes(path, 1, &x);
    }
    let mut ways = vec![];
    for per_pass in [batch, 1] {
        let mut forward = in_passes(path, per_pass, &x)?;
        forward(&mut |_| ())?;
        let start = Instant::now();
        for _ in 0..3 {
            forward(&mut |_| ())?;
        }
        ways.push((start.elapsed(), forward));
    }
    ways.sort_by_key(|way| way.0);
    Ok(ways.swap_remove(0).1)
}

fn main() -> Result<(), Failure> {
    serve(&format!("tract {}", version("tract-onnx")), load)
}
