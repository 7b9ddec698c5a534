//! The charts with few points, and with points outside of their window.

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::turn;
use serde_json::{Value, json};

use crate::isolated::Dashboard;
use crate::no_complaint;

/// Draws a chart of each kind from the points `[time, value]` of a window from 1,000,000 to 1,120,000 ms, and returns by kind the
/// boxes `[left, right, top, bottom]` of its shapes that are not empty, within the plot. A value of `null` is missing.
const DRAW: &str = "
    const points = arguments[0].map(([time, value]) => ({ time, a: value, b: value }));
    return import('/assets/chart.js').then(async ({ TimeChart }) => {
      const found = {};
      for (const kind of ['mirror', 'band', 'bars']) {
        const series = ['a', 'b'].map((key) => ({ key, label: key, tone: 'tx' }));
        const chart = new TimeChart({ title: kind, kind, series, format: String, focus: () => {} });
        document.querySelector('#charts').replaceChildren(chart.element);
        while (!chart.width) await new Promise(requestAnimationFrame);
        chart.show(kind === 'bars' || kind === 'mirror' ? points.filter((point) => point.a != null) : points, 1e6, 1.12e6, null);
        found[kind] = [...chart.shapes.children].filter((shape) => shape.getAttribute('d')).map((shape) => {
          const { x, y, width, height } = shape.getBBox();
          return [x - 68, x + width - 68, y, y + height].map(Math.round);
        });
        found.width = chart.width - 68 - 8;
      }
      return found;
    });
";

/// The shapes of a kind of chart.
fn shapes<'a>(drawn: &'a Value, kind: &str) -> Vec<&'a Value> {
    drawn[kind].as_array().expect("shapes").iter().collect()
}

#[test]
fn few_points_are_visible_and_stay_inside() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    let draw = |points: Value| browser.execute(DRAW, json!([points]));
    let number = |value: &Value| value.as_i64().expect("a number");

    let none = draw(json!([]));
    for kind in ["mirror", "band", "bars"] {
        assert!(shapes(&none, kind).is_empty(), "{none}");
    }
    // One point, in the middle: a mark of some pixels at its place.
    let one = draw(json!([[1_060_000, 500]]));
    let width = number(&one["width"]);
    for kind in ["mirror", "band", "bars"] {
        let shapes = shapes(&one, kind);
        assert!(!shapes.is_empty(), "{kind}: {one}");
        for shape in shapes {
            let (left, right) = (number(&shape[0]), number(&shape[1]));
            assert!(
                right - left >= 2 && left >= width / 2 - 12 && right <= width / 2 + 4,
                "{kind}: {one}"
            );
        }
    }
    // A point among missing ones.
    let alone = draw(json!([[1_030_000, null], [1_060_000, 500], [1_090_000, null]]));
    assert_eq!(alone["band"], one["band"]);
    // Points before and after the window are not drawn, and do not change the axis.
    let inside = json!([[1_000_000, 300], [1_060_000, 500], [1_120_000, 400]]);
    let outside = json!([
        [400_000, 9000],
        [999_000, 9000],
        [1_000_000, 300],
        [1_060_000, 500],
        [1_120_000, 400],
        [1_121_000, 9000]
    ]);
    let (inside, outside) = (draw(inside), draw(outside));
    assert_eq!(inside, outside);
    for kind in ["mirror", "band", "bars"] {
        for shape in shapes(&inside, kind) {
            assert!(number(&shape[0]) >= 0 && number(&shape[1]) <= width + 1, "{kind}: {inside}");
            assert!(number(&shape[2]) >= 0 && number(&shape[3]) <= 130, "{kind}: {inside}");
        }
    }
    no_complaint(&browser);
}
