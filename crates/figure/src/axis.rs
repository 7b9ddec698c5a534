//! Axes: their scale, their range and the values that are labelled.

use crate::Unit;

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal distances for equal differences.
    #[default]
    Linear,
    /// Equal distances for equal factors, labelled at powers of ten.
    Log10,
    /// Equal distances for equal factors, labelled at powers of two: message sizes.
    Log2,
}

/// One axis of a chart.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// The name of the quantity.
    pub label: String,
    /// How its values are written.
    pub unit: Unit,
    /// How its values are spread.
    pub scale: Scale,
    /// Whether the range includes zero; only for [`Scale::Linear`].
    pub from_zero: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, ..Self::default() }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: impl Into<String>, unit: Unit, scale: Scale) -> Self {
        Self { label: label.into(), unit, scale, from_zero: false }
    }

    /// The same axis with zero in its range.
    pub fn with_zero(self) -> Self {
        Self { from_zero: true, ..self }
    }
}

/// A range of an axis that has values, in the axis's own coordinate: logarithms on a logarithmic scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    /// The range of all values that can be drawn. It is never empty.
    pub(crate) fn of(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let scale = axis.scale;
        let (mut low, mut high) = values
            .filter_map(|value| coordinate(scale, value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if scale == Scale::Linear {
            if axis.from_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            if low == high {
                // A single value: show it in the middle, or above zero.
                let half = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
                (low, high) = (if axis.from_zero { low.min(0.0) } else { low - half }, high + half);
            }
            if axis.from_zero {
                let step = step(high - low);
                high = (high / step).ceil() * step;
            }
        } else if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        Self { low, high, scale }
    }

    /// Where `value` is between 0 and 1.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let position = (coordinate(self.scale, value)? - self.low) / (self.high - self.low);
        position.is_finite().then_some(position)
    }

    /// The values to label, at most about ten.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.high - self.low);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step * (1.0 + 1e-12)).floor() as i64;
                (first..=last.min(first.saturating_add(20))).map(|n| n as f64 * step).collect()
            }
            Scale::Log10 | Scale::Log2 => {
                let base: f64 = if self.scale == Scale::Log10 { 10.0 } else { 2.0 };
                let (first, last) =
                    ((self.low - 1e-9).ceil() as i32, (self.high + 1e-9).floor() as i32);
                let stride = ((last.saturating_sub(first)) / 10).max(0) + 1;
                (first..=last).step_by(stride as usize).map(|power| base.powi(power)).collect()
            }
        }
    }
}

fn coordinate(scale: Scale, value: f64) -> Option<f64> {
    let coordinate = match scale {
        Scale::Linear => value,
        Scale::Log10 => value.log10(),
        Scale::Log2 => value.log2(),
    };
    coordinate.is_finite().then_some(coordinate)
}

/// A step of 1, 2 or 5 times a power of ten that divides `span` into about five parts.
fn step(span: f64) -> f64 {
    let rough = (span / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    match rough / power {
        share if share <= 1.0 => power,
        share if share <= 2.0 => 2.0 * power,
        share if share <= 5.0 => 5.0 * power,
        _ => 10.0 * power,
    }
}
