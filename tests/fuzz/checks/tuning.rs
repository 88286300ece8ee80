//! Checks of the records of `tune`.

use super::{FIRST_LINE, file_name, identity, parse, record_text};
use crate::baked::{library, network};
use crate::engine::cache;
use crate::engine::model;
use crate::fuzzing::Input;

/// Reads a record with a right header and checksum, or any text. A record that reads can be planned
/// or is refused, and has this text when written.
pub fn tuning(data: &[u8]) {
    let mut input = Input(data);
    let device = match input.flag() {
        true => identity(None),
        false => ("a device, 4 compute units".to_string(), "1.0".to_string()),
    };
    let (headed, summed) = (input.byte() % 8 != 0, input.byte() % 8 != 0);
    let rest = String::from_utf8_lossy(input.0);
    let mut text = match headed {
        true => format!(
            "{FIRST_LINE}program {}\nmodel {}\nlibrary {}\ndevice {}\ndriver {}\n{rest}",
            env!("CARGO_PKG_VERSION"),
            network().hash,
            library().hash,
            device.0,
            device.1
        ),
        false => rest.into_owned(),
    };
    if summed {
        text += &format!("\nchecksum {:016x}\n", cache::hash(&[&text]));
    }
    let name = file_name(&device);
    let Ok((recipe, of, median)) = parse(&text, &name) else {
        return;
    };
    assert!(of == device && median.is_finite() && median > 0.0);
    let plan = text
        .lines()
        .find_map(|line| line.strip_prefix("plan "))
        .expect("it was read");
    let base = library().plan(plan).expect("it was read");
    assert_eq!(recipe.engine, base.engine);
    let written = record_text(plan, &recipe, &device, (median.max(0.01), 0.0));
    let (again, ..) = parse(&written, &name).unwrap_or_else(|e| panic!("{e}: {written}"));
    assert_eq!(again, recipe);
    if let Ok(plan) = model::planned(network(), &recipe, library(), None) {
        assert!(plan.batch <= recipe.batch);
    }
}
