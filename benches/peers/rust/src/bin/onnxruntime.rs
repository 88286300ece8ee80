//! ONNX Runtime by its C interface, for the table of memory and start: ORT_DYLIB_PATH names the
//! library.

use host_peers::{Failure, Forward, main as serve};
use ort::session::Session;
use ort::value::{TensorRef, ValueType};

fn load(path: &str, threads: usize, batch: usize, x: Vec<f32>) -> Result<Forward, Failure> {
    let failure = |e: ort::Error<_>| e.to_string();
    let environment = ort::init().build()?;
    let mut session = Session::builder(&environment)?
        .with_intra_threads(threads)
        .map_err(failure)?
        .commit_from_file(path)?;
    let ValueType::Tensor { shape, .. } = session.inputs()[0].dtype() else {
        return Err("an input that is no tensor".into());
    };
    let mut shape: Vec<i64> = shape.to_vec();
    shape[0] = batch as i64;
    Ok(Box::new(move |take| {
        let y = session.run(ort::inputs![TensorRef::from_array_view((
            &shape[..],
            &x[..]
        ))?])?;
        take(y[0].try_extract_tensor::<f32>()?.1);
        Ok(())
    }))
}

fn main() -> Result<(), Failure> {
    serve("onnxruntime", load)
}
