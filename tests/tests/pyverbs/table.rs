//! The results as text: a summary line for the test command, and a chapter of `docs/compatibility.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::reasons::{self, Kind, REASONS, Reason};
use super::suite::{Outcome, Tested};

/// The column of a test in the document, which does not record whether a machine-dependent test ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Pass,
    Skip,
    Machine,
    Fail,
}

const COLUMNS: [Column; 4] = [Column::Pass, Column::Skip, Column::Machine, Column::Fail];

fn column(one: &Tested) -> Column {
    match (one.outcome, reasons::of(one).map(|reason| reason.kind)) {
        (Outcome::Fail, _) => Column::Fail,
        (_, Some(Kind::Machine)) => Column::Machine,
        (Outcome::Pass, _) => Column::Pass,
        (Outcome::Skip, _) => Column::Skip,
    }
}

/// Formats a summary line for the test command, followed by the reasons for skipped tests.
pub(crate) fn counts(results: &[Tested]) -> String {
    let count = |outcome| results.iter().filter(|one| one.outcome == outcome).count();
    let mut text = format!(
        "rdma-core's own tests on our libibverbs: {} passed, {} failed, {} skipped\n",
        count(Outcome::Pass),
        count(Outcome::Fail),
        count(Outcome::Skip)
    );
    for reason in REASONS {
        let skipped = results.iter().filter(|one| one.outcome == Outcome::Skip);
        let of_it = skipped
            .filter(|one| reasons::of(one).is_some_and(|found| std::ptr::eq(found, reason)))
            .count();
        if of_it > 0 {
            let _ = writeln!(text, "{of_it:>5} skipped: {}", reason.why);
        }
    }
    text
}

/// Generates the chapter of `docs/compatibility.md`.
pub(crate) fn chapter(results: &[Tested], version: &str) -> String {
    let mut text = format!(
        "The tests of rdma-core {version} (Debian's packages rdma-core and python3-pyverbs) run in `make test`, which \
         prints how\nmany passed and compares this chapter with the results. \"By machine\" counts tests that \
         run only on machines that have\nwhat they need.\n\n"
    );
    let mut modules = BTreeMap::<&str, [usize; COLUMNS.len()]>::new();
    for one in results {
        let index = COLUMNS.iter().position(|it| *it == column(one)).unwrap_or_default();
        modules.entry(&one.module).or_default()[index] += 1;
    }
    let generic = modules.keys().filter(|module| !of_vendor(module)).copied().collect::<Vec<_>>();
    let sum = |of: &dyn Fn(&str) -> bool| {
        let rows = modules.iter().filter(|(module, _)| of(module));
        rows.fold([0; COLUMNS.len()], |mut sum, (_, row)| {
            sum.iter_mut().zip(row).for_each(|(sum, one)| *sum += one);
            sum
        })
    };
    text += "| module | tests | pass | skip | by machine | fail |\n|---|---|---|---|---|---|\n";
    for module in generic {
        text += &row(module, modules[module]);
    }
    for (prefix, name) in [("test_mlx5_", "test_mlx5_*"), ("test_efa", "test_efa*")] {
        text += &row(name, sum(&|module| module.starts_with(prefix)));
    }
    text += &row("**all**", sum(&|_| true));
    text += "\n### Why tests are skipped\n| reason | tests | which |\n|---|---|---|\n";
    for reason in REASONS {
        text += &skips(results, reason);
    }
    text
}

fn of_vendor(module: &str) -> bool {
    module.starts_with("test_mlx5_") || module.starts_with("test_efa")
}

fn row(name: &str, columns: [usize; COLUMNS.len()]) -> String {
    let all: usize = columns.iter().sum();
    let columns = columns.map(|one| one.to_string()).join(" | ");
    format!("| {name} | {all} | {columns} |\n")
}

/// Formats the row of the tests that are skipped for this reason, on this machine or on another.
fn skips(results: &[Tested], reason: &Reason) -> String {
    let of_it: Vec<_> = results
        .iter()
        .filter(|one| one.outcome != Outcome::Fail)
        .filter(|one| reasons::of(one).is_some_and(|found| std::ptr::eq(found, reason)))
        .collect();
    if of_it.is_empty() {
        return String::new();
    }
    let mut which = BTreeMap::<&str, Vec<&str>>::new();
    for one in &of_it {
        let name = one.name.rsplit('.').next().unwrap_or_default();
        which.entry(&one.module).or_default().push(name);
    }
    let which: Vec<_> = if reason.kind == Kind::Vendor {
        vec!["all of its modules".to_owned()]
    } else {
        which.iter().map(|(module, names)| format!("{module}: {}", names.join(", "))).collect()
    };
    format!("| {} | {} | {} |\n", reason.why, of_it.len(), which.join("; "))
}
