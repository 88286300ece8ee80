//! tract: optimised for the batch at hand; one thread of its own, or its executor for matrix products with as many as asked for.

use host_peers::{Failure, Forward, main as serve, version};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;
use tract_onnx::tract_hir::tract_core::internal::DimLike;

fn load(path: &str, threads: usize, batch: usize, x: Vec<f32>) -> Result<Forward, Failure> {
    if threads > 1 {
        set_default_executor(Executor::multithread(threads));
    }
    let model = onnx().model_for_path(path)?;
    let mut shape: Vec<usize> = vec![batch];
    for n in model.input_fact(0)?.shape.dims().skip(1) {
        shape.push(n.concretize().ok_or("a free dimension")?.to_usize()?);
    }
    let model = model.with_input_fact(0, f32::fact(&shape).into())?;
    let mut state = model.into_optimized()?.into_runnable()?.spawn()?;
    let x: TValue = Tensor::from_shape(&shape, &x)?.into();
    Ok(Box::new(move |take| {
        let y = state.run(tvec![x.clone()])?;
        take(y[0].try_as_plain_ram()?.as_slice::<f32>()?);
        Ok(())
    }))
}

fn main() -> Result<(), Failure> {
    serve(&format!("tract {}", version("tract-onnx")), load)
}
