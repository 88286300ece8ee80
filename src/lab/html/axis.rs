//! Linear axes with round ticks.

#[derive(Clone, Copy)]
pub(super) struct PlotAxis {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The distance from one tick to the next, in the unit of the plotted values.
    pub(super) step: f64,
}

/// A tick of a plot's axis, at the value `at`.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

impl PlotAxis {
    /// Returns an axis that covers `low` to `high` with about `ticks` round ticks. The distance of
    /// ticks is a power of two if `binary`, else 1, 2 or 5 times a power of ten.
    pub(super) fn new(low: f64, high: f64, ticks: f64, binary: bool) -> PlotAxis {
        // If `low` and `high` are nearly equal, the axis gets longer, so that its ticks differ.
        let high = if high - low > low.abs().max(high.abs()) * 1e-9 {
            high
        } else {
            low + low.abs().max(1.0)
        };
        let raw = (high - low) / ticks;
        let step = if binary {
            raw.log2().ceil().exp2()
        } else {
            let magnitude = 10f64.powf(raw.log10().floor());
            let round = [1.0, 2.0, 5.0].into_iter().find(|&f| raw / magnitude <= f);
            magnitude * round.unwrap_or(10.0)
        };
        if !(step.is_normal() && (high / step).abs() < 1e15) {
            return PlotAxis {
                low,
                high,
                step: high - low,
            };
        }
        // The slack absorbs rounding errors. For example 0.6 / 0.2 is a little less than 3.
        let slack = 1e-9;
        PlotAxis {
            low: (low / step + slack).floor() * step,
            high: (high / step - slack).ceil() * step,
            step,
        }
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        let count = ((self.high - self.low) / self.step).round().min(40.0) as usize;
        let digits = (-self.step.log10()).ceil().clamp(0.0, 9.0) as usize;
        let extreme = self.high.abs().max(self.low.abs()) >= 1e9 || self.step < 1e-8;
        let tick = |i| {
            let at = self.low + i as f64 * self.step;
            let label = match extreme && at != 0.0 {
                true => format!("{at:.1e}"),
                false => format!("{at:.digits$}"),
            };
            Tick { at, label }
        };
        (0..=count).map(tick).collect()
    }

    /// Returns the position of a value along the axis, from 0 at `low` to 1 at `high`.
    pub(super) fn share(&self, x: f64) -> f64 {
        ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}
