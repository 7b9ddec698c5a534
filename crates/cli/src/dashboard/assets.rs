//! The page, its scripts and its styles, as parts of the executable: nothing is loaded from elsewhere.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// The files below `/assets/`.
const FILES: &[(&str, &str, &str)] = &[
    ("anomalies.js", JS, include_str!("assets/anomalies.js")),
    ("api.js", JS, include_str!("assets/api.js")),
    ("app.js", JS, include_str!("assets/app.js")),
    ("chart.js", JS, include_str!("assets/chart.js")),
    ("detail.js", JS, include_str!("assets/detail.js")),
    ("dom.js", JS, include_str!("assets/dom.js")),
    ("format.js", JS, include_str!("assets/format.js")),
    ("ladder.js", JS, include_str!("assets/ladder.js")),
    ("run.js", JS, include_str!("assets/run.js")),
    ("tables.js", JS, include_str!("assets/tables.js")),
    ("base.css", CSS, include_str!("assets/base.css")),
    ("ladder.css", CSS, include_str!("assets/ladder.css")),
    ("panels.css", CSS, include_str!("assets/panels.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// The page.
pub(super) fn page() -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("assets/index.html"))
        .into_response()
}

/// The file with this name.
pub(super) fn find(name: &str) -> Option<Response> {
    let (_, kind, text) = FILES.iter().find(|(own, ..)| *own == name)?;
    Some(([(CONTENT_TYPE, *kind)], *text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content security policy would refuse it at run time; this names the place.
    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        let page = include_str!("assets/index.html");
        for forbidden in ["style=", "onclick", "<style", "//cdn", "https://"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        for (name, _, text) in FILES {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
            ] {
                assert!(!text.contains(forbidden), "{name}: {forbidden}");
            }
            let http = text.matches("http://").count();
            assert_eq!(http, text.matches("http://www.w3.org/").count(), "{name}");
        }
    }

    #[test]
    fn every_file_that_is_referenced_exists() {
        let all = FILES.iter().map(|(_, _, text)| *text).chain([include_str!("assets/index.html")]);
        for text in all {
            for part in text.split("/assets/").skip(1).chain(text.split("from \"./").skip(1)) {
                let name = part.split('"').next().unwrap_or_default();
                assert!(find(name).is_some(), "{name}");
            }
        }
    }
}
