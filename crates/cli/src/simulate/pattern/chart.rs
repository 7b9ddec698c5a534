//! Queue depth and rates over time as an SVG chart.

use ferroce_figure::{Axis, LineChart, STYLE, Series, Stroke, Unit};
use ferroce_sim::rdma::traffic::{Experiment, Results, Sample};

use super::text;

/// The size of one chart.
const WIDTH: u32 = 840;
const HEIGHT: u32 = 340;

/// Points of a line: more could not be told apart, and rates over shorter times are noise.
const MAX_POINTS: usize = 160;

/// Draws both charts, one below the other.
pub(super) fn svg(experiment: &Experiment, results: &Results) -> String {
    let samples = &results.samples.samples;
    let (queue, rates) = (queue(experiment, results, samples), rates(results, samples));
    let height = 2 * HEIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\">\n<style>{STYLE}</style>\n<g>{}</g>\n<g transform=\"translate(0 {HEIGHT})\">{}</g>\n</svg>\n",
        queue.to_fragment(),
        rates.to_fragment()
    )
}

fn seconds(sample: &Sample) -> f64 {
    sample.time.as_nanos() as f64 / 1e9
}

fn chunk(samples: &[Sample]) -> usize {
    samples.len().div_ceil(MAX_POINTS).max(1)
}

/// The longest queue of all ports.
fn queue(experiment: &Experiment, results: &Results, samples: &[Sample]) -> LineChart {
    // The maximum of several samples: a mean would hide a queue that is full for a short time.
    let points = samples.chunks(chunk(samples)).filter_map(|chunk| {
        let deepest = chunk.iter().map(|sample| sample.queue).max()?;
        Some((seconds(chunk.first()?), deepest as f64))
    });
    let name = format!("longest queue ({})", results.queue.port);
    LineChart {
        title: text::title(experiment),
        x: Axis::linear("time", Unit::Seconds).with_zero(),
        y: Axis::linear("queued", Unit::Bytes).with_zero(),
        series: vec![Series { name, points: points.collect(), stroke: Stroke::Area }],
    }
}

/// The rates at which the first hosts send; the rate of all deliveries if others send too.
fn rates(results: &Results, samples: &[Sample]) -> LineChart {
    let hosts = &results.samples.hosts;
    let line = |name: String, bytes: &dyn Fn(&Sample) -> u64| {
        let ends: Vec<&Sample> = samples.iter().step_by(chunk(samples)).collect();
        let points = ends.windows(2).map(|pair| {
            let time = seconds(pair[1]) - seconds(pair[0]);
            (seconds(pair[1]), (bytes(pair[1]) - bytes(pair[0])) as f64 * 8.0 / time)
        });
        Series { name, points: points.collect(), stroke: Stroke::Line }
    };
    let mut senders: Vec<_> = results.flows.iter().map(|flow| flow.from).collect();
    senders.dedup();
    let series = if senders.len() <= hosts.len() {
        let of_host = |(at, host)| line(format!("{host}"), &move |sample: &Sample| sample.sent[at]);
        hosts.iter().enumerate().map(of_host).collect()
    } else {
        vec![line("delivered to all hosts".to_owned(), &|sample| sample.delivered)]
    };
    LineChart {
        title: "Sending rates".to_owned(),
        x: Axis::linear("time", Unit::Seconds).with_zero(),
        y: Axis::linear("rate", Unit::BitsPerSecond).with_zero(),
        series,
    }
}
