//! What the form of the page offers: the commands, and every value that each of their options may have.
//!
//! The page builds the form from this table, and a request is checked against it. So no text of a request becomes an
//! argument: arguments are the strings of this table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// A command of the form.
#[derive(Debug, Serialize)]
pub(super) struct Offer {
    command: &'static str,
    summary: &'static str,
    choices: &'static [Choice],
    /// Arguments that are always given.
    #[serde(skip)]
    always: &'static [&'static str],
}

/// An option of a command. Its first value is the default.
#[derive(Debug, Serialize)]
struct Choice {
    name: &'static str,
    label: &'static str,
    #[serde(serialize_with = "names")]
    values: &'static [Value],
}

/// The name of a value, and the arguments that it becomes.
type Value = (&'static str, &'static [&'static str]);

/// The page learns only the names.
fn names<S: Serializer>(values: &&'static [Value], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|(name, _)| name))
}

/// A choice of values.
const fn choice(name: &'static str, label: &'static str, values: &'static [Value]) -> Choice {
    Choice { name, label, values }
}

/// The file that a command may write a chart to, in its own directory.
pub(super) const FIGURE: &str = "figure.svg";

/// The commands.
pub(super) const OFFERS: &[Offer] = &[
    Offer {
        command: "demo",
        summary: "A server and a client perform every operation once; shows every step and every packet.",
        always: &[],
        choices: &[
            choice(
                "set_up",
                "Set-up",
                &[
                    ("connection manager", &["--set-up", "cm"]),
                    ("exchange", &["--set-up", "exchange"]),
                ],
            ),
            choice(
                "size",
                "Size",
                &[
                    ("16K", &["--size", "16K"]),
                    ("4K", &["--size", "4K"]),
                    ("64K", &["--size", "64K"]),
                    ("1M", &["--size", "1M"]),
                ],
            ),
        ],
    },
    Offer {
        command: "perf",
        summary: "Measures bandwidth, latency or message rate between two processes of this host.",
        always: &["--quiet", "--svg", FIGURE],
        choices: &[
            choice(
                "operation",
                "Operation",
                &[
                    ("WRITE", &["write"]),
                    ("READ", &["read"]),
                    ("SEND", &["send"]),
                    ("atomic", &["atomic"]),
                ],
            ),
            choice(
                "measure",
                "Measure",
                &[("bandwidth", &["bw"]), ("latency", &["lat"]), ("message rate", &["rate"])],
            ),
            choice(
                "transport",
                "Transport",
                &[
                    ("RC", &["--transport", "rc"]),
                    ("UC", &["--transport", "uc"]),
                    ("UD", &["--transport", "ud"]),
                    ("XRC", &["--transport", "xrc"]),
                ],
            ),
            choice(
                "size",
                "Size",
                &[
                    ("default", &[]),
                    ("all", &["--all"]),
                    ("64", &["--size", "64"]),
                    ("4K", &["--size", "4K"]),
                    ("64K", &["--size", "64K"]),
                    ("1M", &["--size", "1M"]),
                ],
            ),
            choice(
                "duration",
                "Each for",
                &[
                    ("1 s", &["--duration", "1s"]),
                    ("2 s", &["--duration", "2s"]),
                    ("5 s", &["--duration", "5s"]),
                ],
            ),
            choice("path", "Path", &[("shared memory", &[]), ("sockets", &["--wire"])]),
        ],
    },
    Offer {
        command: "compare",
        summary: "Moves the same bytes by RDMA WRITE and by TCP, in turn, and says which is faster.",
        always: &["--quiet", "--svg", FIGURE],
        choices: &[
            choice(
                "size",
                "Size",
                &[
                    ("64M", &["--size", "64M"]),
                    ("16M", &["--size", "16M"]),
                    ("256M", &["--size", "256M"]),
                    ("1G", &["--size", "1G"]),
                ],
            ),
            choice(
                "chunk",
                "Chunk",
                &[
                    ("4M", &["--chunk", "4M"]),
                    ("1M", &["--chunk", "1M"]),
                    ("64K", &["--chunk", "64K"]),
                ],
            ),
            choice(
                "rounds",
                "Rounds",
                &[("3", &["--rounds", "3"]), ("5", &["--rounds", "5"]), ("9", &["--rounds", "9"])],
            ),
            choice("verify", "Verify", &[("no", &[]), ("yes", &["--verify"])]),
        ],
    },
];

/// A request that was checked.
#[derive(Debug)]
pub(super) struct Request {
    arguments: Vec<&'static str>,
}

/// A request as the page sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    command: String,
    #[serde(default)]
    options: BTreeMap<String, String>,
}

impl Request {
    /// Checks a request: unknown commands, options and values are refused, and missing options get their default.
    pub(super) fn new(wish: &Wish) -> Result<Self, String> {
        let offer = OFFERS.iter().find(|offer| offer.command == wish.command);
        let offer = offer.ok_or("no such command")?;
        if let Some(name) =
            wish.options.keys().find(|name| offer.choices.iter().all(|one| one.name != **name))
        {
            return Err(format!("{} has no option {name:?}", offer.command));
        }
        let mut arguments = vec![offer.command];
        for choice in offer.choices {
            let value = match wish.options.get(choice.name) {
                None => choice.values.first(),
                Some(wanted) => choice.values.iter().find(|(name, _)| name == wanted),
            };
            let (_, words) =
                value.ok_or_else(|| format!("{} cannot have this value", choice.name))?;
            arguments.extend(*words);
        }
        arguments.extend(offer.always);
        Ok(Self { arguments })
    }

    /// The arguments of `ferroce`.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.arguments.iter().map(|&argument| argument.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn request(command: &str, options: &[(&str, &str)]) -> Result<Vec<&'static str>, String> {
        let options = options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let wish = Wish { command: command.to_owned(), options: options.collect() };
        Request::new(&wish).map(|request| request.arguments)
    }

    #[test]
    fn only_listed_values_become_arguments() {
        assert_eq!(request("demo", &[]).unwrap(), ["demo", "--set-up", "cm", "--size", "16K"]);
        assert_eq!(
            request("demo", &[("size", "1M"), ("set_up", "exchange")]).unwrap(),
            ["demo", "--set-up", "exchange", "--size", "1M"]
        );
        for (command, options) in [
            ("run", &[][..]),
            ("", &[]),
            ("demo --keep", &[]),
            ("demo", &[("size", "2M")]),
            ("demo", &[("size", "16K; touch /tmp/x")]),
            ("demo", &[("capture", "/etc/passwd")]),
            ("demo", &[("", "")]),
        ] {
            assert!(request(command, options).is_err(), "{command} {options:?}");
        }
        assert!(serde_json::from_str::<Wish>(r#"{"command":"demo","arguments":["x"]}"#).is_err());
    }

    /// Every value of every option is one that the command accepts.
    #[test]
    fn the_command_line_accepts_every_value() {
        for offer in OFFERS {
            for choice in offer.choices {
                for (value, _) in choice.values {
                    let arguments = request(offer.command, &[(choice.name, value)]).unwrap();
                    let words = ["ferroce"].into_iter().chain(arguments.iter().copied());
                    if let Err(error) = Cli::try_parse_from(words) {
                        panic!("{arguments:?}: {error}");
                    }
                }
            }
        }
    }
}
