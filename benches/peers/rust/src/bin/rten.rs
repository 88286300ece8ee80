//! RTen: weights packed at load, a thread pool of its own with as many threads as asked for.

use host_peers::{Failure, Forward, main as serve, version};
use rten::{Dimension, ModelOptions};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

fn load(path: &str, threads: usize, batch: usize, x: Vec<f32>) -> Result<Forward, Failure> {
    // SAFETY: no other thread runs yet; the pool, which reads it, is made once, at first use.
    unsafe { std::env::set_var("RTEN_NUM_THREADS", threads.to_string()) };
    let model = ModelOptions::with_all_ops()
        .prepack_weights(true)
        .load_file(path)?;
    let mut shape = vec![batch];
    for dimension in &model.input_shape(0).ok_or("an input without a shape")?[1..] {
        let Dimension::Fixed(n) = dimension else {
            return Err("a free dimension".into());
        };
        shape.push(*n);
    }
    let x = Tensor::from_data(&shape, x);
    Ok(Box::new(move |take| {
        let y: Tensor<f32> = model.run_one(x.view().into(), None)?.try_into()?;
        take(y.data().ok_or("results with gaps")?);
        Ok(())
    }))
}

fn main() -> Result<(), Failure> {
    serve(&format!("rten {}", version("rten")), load)
}
