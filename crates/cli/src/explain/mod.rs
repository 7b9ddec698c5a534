//! `ferroce explain`: a topic in words, with a real example produced on the spot.
//!
//! [`topics`] are the texts, [`lab`] runs the examples, [`example`] draws what a topic is about.

mod args;
mod example;
mod lab;
mod lookup;
mod output;
mod reason;
mod status;
#[cfg(test)]
mod tests;
mod topic;
mod topics;

use std::io::{self, BufWriter, Write};

pub(crate) use args::{EXAMPLES, ExplainArgs};

use crate::exit::ExitStatus;
use crate::style::Screen;
use lookup::Found;

/// Explains a topic, or lists all.
pub(crate) fn run(args: &ExplainArgs, screen: &Screen) -> ExitStatus {
    if args.topic.is_empty() {
        if args.json {
            return crate::devices::json(&output::list_json(), screen);
        }
        let result = output::list(screen, &mut io::stdout().lock());
        return ExitStatus::of_output(result.map(|()| ExitStatus::Success), screen);
    }
    let query = args.topic.join(" ");
    if let Some(reason) = reason::find(&query) {
        return reason::explain(reason, args, screen);
    }
    match lookup::find(&query) {
        Ok(found) => explain(&found, args, screen),
        Err(close) => {
            let hint = match close.is_empty() {
                true => "`ferroce explain` lists the topics".to_owned(),
                false => {
                    format!("did you mean {}? `ferroce explain` lists all topics", close.join(", "))
                }
            };
            screen.complain(format_args!("there is no topic {query:?}: {hint}"));
            ExitStatus::Failure
        }
    }
}

fn explain(found: &Found, args: &ExplainArgs, screen: &Screen) -> ExitStatus {
    let example = found.topic.example;
    let scenario = example.scenario().filter(|_| !args.no_example);
    let run = scenario.map(|scenario| {
        let record = scenario.run()?;
        let shown = example::show(example, &record, screen.columns)?;
        Ok::<_, String>((record, shown))
    });
    let (run, failure) = match run.transpose() {
        Ok(run) => (run, None),
        Err(error) => (None, Some(error)),
    };
    let status = match failure {
        Some(_) => ExitStatus::Failure,
        None => ExitStatus::Success,
    };
    let result = if args.json {
        let run = run.as_ref().map(|(record, shown)| (record, shown));
        crate::devices::json(&output::json(found, run, failure.as_deref()), screen)
    } else {
        let mut output = BufWriter::new(io::stdout().lock());
        let written = output::text(found, screen, &mut output).and_then(|()| {
            match &run {
                Some((record, shown)) => {
                    output::example(record, shown, args.ascii, screen, &mut output)?;
                }
                None => output::without_example(found.topic, screen, &mut output)?,
            }
            output.flush()
        });
        ExitStatus::of_output(written.map(|()| ExitStatus::Success), screen)
    };
    if let Some(error) = failure {
        screen.complain(format_args!(
            "the example could not be run: {error}; `ferroce doctor` checks this host"
        ));
    }
    result.and(status)
}
