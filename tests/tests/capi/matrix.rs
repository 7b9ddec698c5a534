//! Checks that `docs/compatibility.md` lists every symbol of the built libraries with its behaviour.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use ferroce_tests::{c, document, libraries, tool};

use super::source::{self, Symbol};

const COMMAND: &str = "cargo nextest run -j 1 -p ferroce-tests --test capi";
/// An exported variable, which is not in the list of functions.
const VARIABLE: (&str, &str) = ("IBVERBS_PRIVATE_65", "verbs_allow_disassociate_destroy");

/// Returns version and name of each exported symbol; of a name with several versions, the default one.
fn built() -> BTreeSet<(String, String)> {
    let mut command = Command::new("readelf");
    command.args(["-W", "--dyn-syms"]).arg(libraries::folder().join("libibverbs.so.1"));
    let table = String::from_utf8(tool::run(&mut command)).expect("readelf prints UTF-8");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 7 && fields[6] != "UND")
        .filter_map(|fields| fields[7].split_once("@@"))
        .map(|(name, version)| (version.to_owned(), name.to_owned()))
        .collect()
}

fn is_private(symbol: &Symbol) -> bool {
    symbol.version.contains("PRIVATE")
}

/// Formats the table of a library's symbols.
fn table(symbols: &[Symbol]) -> String {
    let refusals = source::refusals();
    let mut text = "| symbol | version | behaviour |\n|---|---|---|\n".to_owned();
    for symbol in symbols {
        let does = match refusals.get(&symbol.leads_to) {
            Some(words) => words,
            None => "implemented",
        };
        let _ = writeln!(text, "| `{}` | {} | {does} |", symbol.name, symbol.version);
    }
    text
}

fn counted(symbols: &[Symbol]) -> String {
    let refused = symbols.iter().filter(|one| one.leads_to.starts_with("refuse::")).count();
    format!("{} symbols, of which {} are implemented.\n", symbols.len(), symbols.len() - refused)
}

#[test]
fn the_document_has_the_symbols_of_the_built_library() {
    let listed = source::symbols();
    let mut expected: BTreeSet<_> =
        listed.iter().map(|one| (one.version.clone(), one.name.clone())).collect();
    expected.insert((VARIABLE.0.to_owned(), VARIABLE.1.to_owned()));
    assert_eq!(built(), expected, "the built library does not export what export.rs lists");

    let of = |prefix: &str| -> Vec<_> {
        listed.iter().filter(|one| one.version.starts_with(prefix)).cloned().collect()
    };
    let (private, public): (Vec<_>, Vec<_>) = of("IBVERBS").into_iter().partition(is_private);
    let body = format!(
        "{}\n{}\n### The private node\n\
         The vendor drivers that perftest, UCX and libfabric load bind these symbols, so they must be exported although \
         the\ndrivers find no device. The variable `{}` is exported as well. A driver binds the \
         version of\nits own release, so all of these also exist as IBVERBS_PRIVATE_25, 33, 34 (releases 34 to 56), 57, \
         59 (59 to 63) and 64.\n\n{}",
        counted(&public),
        table(&public),
        VARIABLE.1,
        table(&private)
    );
    document::keep("compatibility.md", "Symbols of libibverbs.so.1", &body, COMMAND);
    let manager = of("RDMACM");
    let body = format!("{}\n{}", counted(&manager), table(&manager));
    document::keep("compatibility.md", "Symbols of librdmacm.so.1", &body, COMMAND);
    document::keep("compatibility.md", "Verbs behind no symbol", &verbs(), COMMAND);
}

fn verbs() -> String {
    let mut text = "The header calls these through tables of function pointers in the context. Where an entry is NULL \
                    the header itself\nreturns EOPNOTSUPP.\n\n| verb | behaviour |\n|---|---|\n"
        .to_owned();
    for (name, is_there) in source::verbs() {
        let does = if is_there { "implemented" } else { "EOPNOTSUPP" };
        let _ = writeln!(text, "| `{name}` | {does} |");
    }
    text
}

/// The return value of a function as a pointer and as a number, and `errno`.
type Returned = (i64, i32, i32);

/// Whether the return value matches the description in the source. `None` if the description has no visible effect.
fn as_said(words: &str, (pointer, number, errno): Returned) -> Option<bool> {
    let code = |name: &str| match name {
        "EOPNOTSUPP" => 95,
        "ENOSYS" => 38,
        other => panic!("{other} is unknown here: add its number"),
    };
    Some(match words.split_once(", errno ") {
        Some(("NULL", name)) => pointer == 0 && errno == code(name),
        Some(("-1", name)) => pointer == -1 && errno == code(name),
        _ => match words {
            "returns EOPNOTSUPP" => number == code("EOPNOTSUPP") && errno == number,
            "returns 0, there is nothing to do" => pointer == 0,
            "returns IBV_FORK_UNNEEDED" => number == 2,
            "a text that says it is unknown" => pointer != 0,
            _ => return None,
        },
    })
}

#[test]
fn unsupported_functions_fail_as_documented() {
    let Some(program) = c::compile("refused", &["capi/refused.c"], "infiniband/verbs.h") else {
        return;
    };
    let refusals = source::refusals();
    let refused: Vec<_> = source::symbols()
        .into_iter()
        .filter_map(|symbol| refusals.get(&symbol.leads_to).map(|words| (symbol, words)))
        .collect();
    let mut child = c::command(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("its input");
    for (symbol, _) in &refused {
        writeln!(input, "{} {}", symbol.name, symbol.version).expect("it reads");
    }
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    let returned: BTreeMap<&str, Returned> = said.lines().filter_map(parse).collect();
    let mut seen = 0;
    for (symbol, words) in &refused {
        let returned = returned[symbol.name.as_str()];
        let right = as_said(words, returned);
        assert_ne!(right, Some(false), "{} returned {returned:?}, not: {words}", symbol.name);
        seen += usize::from(right.is_some());
    }
    assert!(seen > 60, "only {seen} of {} were looked at", refused.len());
}

fn parse(line: &str) -> Option<(&str, Returned)> {
    let fields: Vec<_> = line.split(' ').collect();
    let [name, pointer, number, errno] = fields[..] else { return None };
    Some((name, (pointer.parse().ok()?, number.parse().ok()?, errno.parse().ok()?)))
}
