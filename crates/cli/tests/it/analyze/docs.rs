//! Compares the examples in the documentation with the output of the command.
//!
//! With `FERROCE_UPDATE_DOCS=1` in the environment the examples are rewritten instead of compared.

use std::collections::BTreeSet;
use std::fs;

use ferroce_trace::analysis::anomaly::AnomalyKind;
use serde_json::Value;

use super::{CAPTURES, analyze_all, capture, json, root, run, scratch, stdout};

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("document")
}

/// Compares, or rewrites, the first block of a document that starts with `fence`.
fn check_block(name: &str, fence: &str, expected: &str) {
    let text = document(name);
    let start = text.find(fence).expect("the block exists") + fence.len();
    let end = start + text[start..].find("```").expect("the block ends");
    if std::env::var_os("FERROCE_UPDATE_DOCS").is_some() {
        let text = [&text[..start], expected, &text[end..]].concat();
        return fs::write(root().join("docs").join(name), text).expect("written");
    }
    assert!(
        &text[start..end] == expected,
        "the example in docs/{name} is not what the command prints now; \
         FERROCE_UPDATE_DOCS=1 cargo test -p ferroce-cli --test it analyze::docs writes it anew"
    );
}

/// Collects the keys of all objects in a value, except those of maps (opcodes, kinds, operations, fields), which are data.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                found.insert(key.clone());
                match key.as_str() {
                    "opcodes" | "anomaly_counts" | "details" => {}
                    "anomalies" if value.is_object() => {}
                    "operations" => {
                        value.as_object().into_iter().flatten().for_each(|(_, it)| keys(it, found))
                    }
                    // A map by operation in a file, a plain object in an operation.
                    "latency" if value.get("count").is_none() => {
                        value.as_object().into_iter().flatten().for_each(|(_, it)| keys(it, found));
                    }
                    _ => keys(value, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let mut found = BTreeSet::new();
    keys(&analyze_all(), &mut found);
    let cut = scratch("documented.pcap", &capture("rnr.pcap")[..1000]);
    keys(&json(&run(&["--json", &cut])), &mut found);
    assert!(found.contains("offset") && found.contains("p99_ns"), "{found:?}");
    let text = document("analyze-json.md");
    let missing: Vec<_> = found.iter().filter(|key| !text.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "not in docs/analyze-json.md: {missing:?}");
}

#[test]
fn the_json_example_is_current() {
    let path = format!("{CAPTURES}/bad_rkey_read.pcap");
    let output = run(&["--json", "--packets", "--graph-interval", "1s", &path]);
    let text = layout(stdout(&output).trim_end(), 0);
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), json(&output));
    check_block("analyze-json.md", "```json\n", &format!("{text}\n"));
}

/// Breaks JSON into lines; values that fit on a line stay on it. Works on the text to keep the order of the fields.
fn layout(json: &str, indent: usize) -> String {
    let elements = elements(json);
    if elements.is_empty() {
        return json.to_owned();
    }
    if json.len() + indent <= 100 {
        return spaced(json);
    }
    let inner = " ".repeat(indent + 2);
    let lines: Vec<_> = elements
        .iter()
        .map(|element| match element.split_once("\":").filter(|_| json.starts_with('{')) {
            Some((key, value)) => format!("{inner}{key}\": {}", layout(value, indent + 2)),
            None => format!("{inner}{}", layout(element, indent + 2)),
        })
        .collect();
    let (open, close) = (&json[..1], &json[json.len() - 1..]);
    format!("{open}\n{}\n{}{close}", lines.join(",\n"), " ".repeat(indent))
}

/// Adds a blank after every comma and colon that is not in a string.
fn spaced(json: &str) -> String {
    let mut text = String::new();
    scan(json, |character, _, quoted| {
        text.push(character);
        if !quoted && matches!(character, ',' | ':') {
            text.push(' ');
        }
    });
    text
}

/// Returns the elements of an array or object; none for other values.
fn elements(json: &str) -> Vec<&str> {
    if !json.starts_with(['[', '{']) {
        return Vec::new();
    }
    let (mut starts, mut at) = (vec![1], 0);
    scan(json, |character, depth, quoted| {
        if character == ',' && depth == 1 && !quoted {
            starts.push(at + 1);
        }
        at += character.len_utf8();
    });
    let ends = starts.iter().skip(1).map(|start| start - 1).chain([json.len() - 1]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| &json[start..end])
        .filter(|it| !it.is_empty())
        .collect()
}

/// Calls `each` with every character, the number of brackets open after it, and whether it is part of a string.
fn scan(json: &str, mut each: impl FnMut(char, usize, bool)) {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for character in json.chars() {
        match character {
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = character == '\\' && !escaped;
        each(character, depth, quoted);
    }
}

#[test]
fn every_anomaly_is_documented() {
    let text = document("analyze.md");
    for kind in AnomalyKind::ALL {
        let row = format!("| `{}` |", kind.name());
        assert_eq!(text.matches(&row).count(), 1, "{row} in docs/analyze.md");
    }
}

#[test]
fn the_text_example_is_current() {
    let path = format!("{CAPTURES}/rnr.pcap");
    let output = run(&["--ladder", &path]);
    let text = format!("$ ferroce analyze --ladder {path}\n{}", stdout(&output));
    check_block("analyze.md", "```console\n", &text);
}

#[test]
fn the_readme_quotes_the_output_of_its_first_command() {
    let text = fs::read_to_string(root().join("README.md")).expect("README");
    let block = text.split("```text\n").nth(1).expect("a block").split("```").next().expect("ends");
    let output = run(&[&format!("{CAPTURES}/rnr.pcap"), "--ladder"]);
    assert!(
        stdout(&output).contains(block),
        "the block in README.md is not in the output of the command"
    );
}
