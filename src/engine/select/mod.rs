//! Chooses the engine, device and plan that run the network, as the command line asks. Under
//! `auto`, tuning records, a trial of the device, or an estimate decide.
//!
//! | file       | what                                                              |
//! |------------|-------------------------------------------------------------------|
//! | `wish`     | the command line's wish                                           |
//! | `decide`   | the decision: device and plan, with reasons                       |
//! | `devices`  | OpenCL devices: choosing among them, describing them              |
//! | `memory`   | batches that the memory limit allows                              |
//! | `start`    | starting one engine or several                                    |
//! | `diagnose` | the first wrong step of a device                                  |

mod decide;
mod devices;
mod diagnose;
mod memory;
mod start;
mod wish;

pub(crate) use decide::{Decision, decide};
pub(crate) use devices::{choose, listing};
pub(crate) use memory::{model, threads};
pub(crate) use start::{Diagnose, Running, beside, each, start};
pub(crate) use wish::{DeviceWish, Request, is_auto};

#[cfg(test)]
mod tests {
    use super::start::of_device;
    use super::*;
    use crate::baked;
    use crate::cl;
    use crate::engine::model::Model;
    use crate::engine::model::Values;
    use crate::engine::opencl::Wanted;
    use crate::engine::sources::Sources;
    use crate::planner::CALLS;
    use std::borrow::Cow;

    #[test]
    fn an_error_of_one_of_several_devices_keeps_its_call_and_code() {
        let failed = cl::ClError::new("clFinish", -5, "queue");
        let text = format!("opencl 1: {failed}");
        let error = of_device(Some("1"), failed.clone().into());
        assert_eq!(error.to_string(), text);
        assert_eq!(
            std::error::Error::source(&error).and_then(|e| e.downcast_ref()),
            Some(&failed)
        );
    }

    /// The program uses the baked plan as it is: it makes no plan at start and copies no constant.
    #[test]
    fn the_baked_plan_runs_as_it_was_baked() {
        let request = Request {
            device: DeviceWish::Auto,
            compute_units: None,
            plan: Some("baked".into()),
            batch: None,
            max_memory: None,
            wanted: Wanted {
                scores: true,
                classes: true,
            },
            timed: false,
            track: None,
            sources: Sources::default(),
            tries: true,
            grows: false,
        };
        for device in [DeviceWish::Auto, DeviceWish::Host] {
            for plan in [None, Some("baked".to_string())] {
                let request = Request {
                    device: device.clone(),
                    plan,
                    ..request.clone()
                };
                let before = CALLS.get();
                let running = start(&request).unwrap();
                assert_eq!(
                    CALLS.get(),
                    before,
                    "{:?} {:?}",
                    request.device,
                    request.plan
                );
                assert_eq!(
                    (running.plan, running.laid_out_again),
                    (baked::plan().clone(), 0)
                );
            }
        }
        let model =
            Model::baked(baked::library().plan(&baked::plan().name).unwrap(), None).unwrap();
        let borrowed = |v: &Values| {
            matches!(
                v,
                Values::F32(Cow::Borrowed(_))
                    | Values::F16(Cow::Borrowed(_))
                    | Values::I8(Cow::Borrowed(_))
            )
        };
        assert!(model.constants.iter().all(borrowed));
        // Another batch size needs another plan, which is made at start.
        let before = CALLS.get();
        start(&Request {
            batch: Some(7),
            ..request
        })
        .unwrap();
        assert_eq!(CALLS.get(), before + 1);
    }
}
