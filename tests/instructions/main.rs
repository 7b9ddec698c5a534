//! Counts the instructions of the data path with callgrind: both ends in one thread, the device threads halted, their clocks
//! advancing by a step with each reading. So a count depends neither on the load of the machine nor on its speed: with one
//! binary, two machines with other processors, kernels and C libraries differed by 0.2 % at most.
//!
//! ```text
//! ferroce-instructions            measures every row and compares it with counts.json
//! ferroce-instructions --write    measures every row and writes counts.json
//! ```
//!
//! The counts belong to one compiler and profile, which counts.json names: with others they are printed, not compared.

mod counts;
mod measure;
mod rows;

use std::path::Path;
use std::process::ExitCode;

use counts::Counts;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        // This program under callgrind.
        ["--row", name] => {
            let row =
                rows::ROWS.iter().find(|row| row.name == name).expect("a row of this program");
            rows::run(row);
            ExitCode::SUCCESS
        }
        [] => compare(false),
        ["--write"] => compare(true),
        _ => {
            eprintln!("usage: ferroce-instructions [--write]");
            ExitCode::from(2)
        }
    }
}

fn compare(write: bool) -> ExitCode {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions/counts.json");
    let committed = Counts::read(&path);
    let mut measured = Counts::of_this_build();
    let comparable = committed.as_ref().is_some_and(|committed| committed.same_build(&measured));
    if !comparable && !write {
        println!("counts.json is of another compiler or profile: the counts are not compared");
    }
    println!(
        "{:<28} {:>12} {:>12} {:>8}",
        "instructions per message", "committed", "measured", "change"
    );
    let mut exceeded = false;
    for row in rows::ROWS {
        let count = match measure::row(row.name) {
            Ok(total) => total / row.messages(),
            Err(error) => {
                eprintln!("{}: {error}", row.name);
                return ExitCode::from(2);
            }
        };
        measured.rows.insert(row.name.to_owned(), count);
        let before = committed.as_ref().and_then(|committed| committed.rows.get(row.name));
        let change = before.map(|&before| (count as f64 / before as f64 - 1.0) * 100.0);
        let verdict = match change {
            Some(change) if comparable && change > row.tolerance => {
                exceeded = true;
                "  more than allowed"
            }
            Some(change) if comparable && change < -row.tolerance => "  fewer: write the new count",
            _ => "",
        };
        let before = before.map_or("-".to_owned(), u64::to_string);
        let change = change.map_or("-".to_owned(), |change| format!("{change:+.1} %"));
        println!("{:<28} {before:>12} {count:>12} {change:>8}{verdict}", row.name);
    }
    if write {
        measured.write(&path).expect("counts.json is writable");
        return ExitCode::SUCCESS;
    }
    ExitCode::from(u8::from(exceeded))
}
