//! Finds the first step that a device computes wrongly. Programs without the lab do not search for
//! it.

use super::decide::Decision;
#[cfg(feature = "lab")]
use super::devices::line;
use super::start::Diagnose;
use super::wish::Request;
#[cfg(feature = "lab")]
use crate::engine::diagnosis;

/// Names the first step that a device computes wrongly, as the end of a message. Returns an empty
/// text for the host and for programs without the lab.
#[cfg(feature = "lab")]
pub(super) fn diagnosis(request: &Request, decision: &Decision, records: &[f32]) -> String {
    first_wrong(request, decision, records).map_or_else(String::new, |found| format!("; {found}"))
}

#[cfg(not(feature = "lab"))]
pub(super) fn diagnosis(_: &Request, _: &Decision, _: &[f32]) -> String {
    String::new()
}

/// Returns a function that names the first wrong step of each of several devices. Nobody knows
/// which device computed a record, so each device computes all given records again.
#[cfg(feature = "lab")]
pub(super) fn diagnosis_of_each(request: &Request, decisions: &[Decision]) -> Diagnose {
    let (request, decisions) = (
        Request {
            track: None,
            ..request.clone()
        },
        decisions.to_vec(),
    );
    Box::new(move |records| {
        let of = |d: &Decision| {
            Some(format!(
                "; {}: {}",
                line(d.device.as_ref()?),
                first_wrong(&request, d, records)?
            ))
        };
        decisions.iter().filter_map(of).collect()
    })
}

#[cfg(not(feature = "lab"))]
pub(super) fn diagnosis_of_each(_: &Request, _: &[Decision]) -> Diagnose {
    Box::new(|_| String::new())
}

#[cfg(feature = "lab")]
fn first_wrong(request: &Request, decision: &Decision, records: &[f32]) -> Option<String> {
    let device = decision.device.as_ref()?;
    let found = diagnosis::first_wrong(device, &decision.recipe, &request.sources, records);
    Some(found.unwrap_or_else(|e| e.to_string()))
}
