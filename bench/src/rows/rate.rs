//! Message rate.

use super::perftest;
use crate::parse;
use crate::row::{Bar, Line, Row, Side};

pub(super) fn rows() -> Vec<Row> {
    let (mut sides, mut lines) = (Vec::new(), Vec::new());
    for list in [1, 16, 64] {
        let name = format!("post list {list}");
        let list = if list == 1 { String::new() } else { format!(" -l {list}") };
        let (server, client) = perftest(&format!("ib_write_bw -F -s 64 -N -D 2{list}"));
        sides.push(Side::new(&name, server, client, parse::perftest::bandwidth));
        lines.push(Line::new(&name, "messages", "M/s", &name));
    }
    lines[0] = lines[0].clone().bar(Bar::AtLeast(2.0));
    vec![Row { name: "rate", title: "64 B WRITEs per second", sides, lines, note: "" }]
}
