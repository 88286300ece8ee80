//! Vector code below everything else, which the build shares: float64 for sums of products.
#![allow(unsafe_code)]

pub(crate) mod wide;
