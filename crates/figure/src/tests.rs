use crate::{Axis, Bar, BarChart, LineChart, Scale, Series, Stroke, Unit};

fn chart(points: Vec<(f64, f64)>) -> LineChart {
    LineChart {
        title: "Bandwidth".into(),
        x: Axis::logarithmic("message size", Unit::Bytes, Scale::Log2),
        y: Axis::linear("bandwidth", Unit::BytesPerSecond).with_zero(),
        series: vec![Series { name: "write".into(), points, stroke: Stroke::Line }],
    }
}

#[test]
fn numbers_have_three_digits_and_a_unit() {
    let cases = [
        (Unit::Count, 0.0, "0"),
        (Unit::Count, 1_234_567.0, "1.23 M"),
        (Unit::Count, 999.9, "1 k"),
        (Unit::PerSecond, 12.0, "12/s"),
        (Unit::PerSecond, 1_500_000.0, "1.5 M/s"),
        (Unit::Bytes, 65536.0, "64 KiB"),
        (Unit::Bytes, 2.0, "2 B"),
        (Unit::BytesPerSecond, 3.21e9, "3.21 GB/s"),
        (Unit::BitsPerSecond, 25.6e9, "25.6 Gbit/s"),
        (Unit::Seconds, 4.2e-6, "4.2 µs"),
        (Unit::Seconds, 0.0, "0 s"),
        (Unit::Seconds, 0.0099999, "10 ms"),
        (Unit::Share, 0.425, "42.5 %"),
        (Unit::Ratio, 1.5, "1.5 ×"),
    ];
    for (unit, value, text) in cases {
        assert_eq!(unit.format(value), text, "{unit:?} of {value}");
    }
}

#[test]
fn points_are_placed_by_their_scale() {
    let svg = chart(vec![(2.0, 0.0), (8.0, 1e9), (32.0, 2e9)]).to_svg();
    // 2, 8 and 32 are equally far apart on a logarithmic axis: at 86, 451 and 816 of 840.
    assert!(svg.contains("d=\"M86 288L451 175L816 62\""), "{svg}");
    assert!(svg.contains(">8 B<") && svg.contains(">1 GB/s<"), "{svg}");
    assert!(svg.contains("<title>write: 1 GB/s at 8 B</title>"), "{svg}");
}

#[test]
fn values_that_cannot_be_drawn_interrupt_the_line() {
    let svg =
        chart(vec![(2.0, 1.0), (4.0, f64::NAN), (0.0, 1.0), (8.0, 2.0), (16.0, f64::INFINITY)])
            .to_svg();
    assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn degenerate_charts_are_drawn() {
    for points in [
        vec![],
        vec![(4.0, 0.0)],
        vec![(4.0, 7.0)],
        vec![(4.0, 1e300), (8.0, -1e300)],
        vec![(-1.0, 1.0)],
    ] {
        for stroke in [Stroke::Line, Stroke::Area, Stroke::Step, Stroke::Dots] {
            let mut chart = chart(points.clone());
            chart.series[0].stroke = stroke;
            let svg = chart.to_svg();
            assert!(
                svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
        }
    }
    assert!(BarChart::default().to_svg().ends_with("</svg>\n"));
}

#[test]
fn text_cannot_leave_its_element() {
    let hostile = "</text><script>alert('\"&\u{1}')</script>";
    let mut chart = chart(vec![(1.0, 1.0)]);
    chart.title = hostile.into();
    chart.series[0].name = hostile.into();
    let bars = BarChart {
        title: hostile.into(),
        unit: Unit::Seconds,
        bars: vec![Bar {
            label: hostile.into(),
            note: hostile.into(),
            value: 1.0,
            ..Bar::default()
        }],
    };
    for svg in [chart.to_svg(), bars.to_svg()] {
        assert!(!svg.contains("<script") && !svg.contains('\u{1}'), "{svg}");
    }
}

#[test]
fn bars_are_proportional_and_show_their_range() {
    let bar =
        |label: &str, value, range| Bar { label: label.into(), value, range, ..Bar::default() };
    let chart = BarChart {
        title: "1 GiB".into(),
        unit: Unit::Seconds,
        bars: vec![bar("RDMA", 1.0, Some((0.5, 2.0))), bar("TCP", 2.0, None)],
    };
    let svg = chart.to_svg();
    assert!(svg.contains("width=\"210\"") && svg.contains("width=\"420\""), "{svg}");
    assert_eq!(
        svg.matches("fig-range").count(),
        3 + crate::STYLE.matches("fig-range").count(),
        "{svg}"
    );
    assert!(!chart.to_fragment().contains("<style>"));
}
