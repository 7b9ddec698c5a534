//! Results as JSON, with all samples.

use serde_json::{Value, json as object};

use super::numbers::verdict;
use crate::host;
use crate::row::Outcome;

/// All rows.
pub(crate) fn json(outcomes: &[Outcome<'_>]) -> String {
    let host: serde_json::Map<String, Value> =
        host::properties().into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    let rows: Vec<Value> = outcomes.iter().map(row).collect();
    format!("{:#}", object!({ "host": host, "rows": rows }))
}

fn row(outcome: &Outcome<'_>) -> Value {
    let lines = outcome.row.lines.iter().map(|line| {
        let (ours, theirs, ratio) = outcome.compare(line);
        object!({
            "name": line.name,
            "unit": line.unit,
            "ours": ours.map(|ours| ours.median),
            "against": line.against.as_ref().map(|other| &other.name),
            "theirs": theirs.map(|theirs| theirs.median),
            "ratio": ratio,
            "result": verdict(line.bar.judge(ours, ratio)),
        })
    });
    let sides = outcome.row.sides.iter().zip(&outcome.samples);
    let samples: serde_json::Map<String, Value> =
        sides.map(|(side, samples)| (side.name.clone(), object!(samples))).collect();
    object!({
        "name": outcome.row.name,
        "lines": lines.collect::<Vec<_>>(),
        "samples": samples,
        "failures": outcome.failures,
        "skipped": outcome.skipped,
    })
}
