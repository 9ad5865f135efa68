//! The text formats of metrics: OpenMetrics, and the older one of Prometheus for clients that
//! prefer `text/plain`.

use axum::http::{HeaderMap, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    OpenMetrics,
    Prometheus,
}

impl TextFormat {
    /// The one with the higher quality in `accept` (RFC 9110, section 12.5.1); `OpenMetrics` if
    /// they have the same, or none.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).into_iter();
        let values: Vec<_> = values.filter_map(|it| it.to_str().ok()).collect();
        let quality = |kind, subtype| quality(&values, kind, subtype);
        if quality("text", "plain") > quality("application", "openmetrics-text") {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    /// Prometheus rejects a scrape without it.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Metrics in this format, from those in `OpenMetrics`.
    pub(super) fn convert(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Prometheus => to_prometheus(&text),
        }
    }
}

/// The quality of a media type by the most specific range that has it, in thousandths.
fn quality(accept: &[&str], kind: &str, subtype: &str) -> u16 {
    let ranges = accept.iter().flat_map(|value| value.split(','));
    let of_range = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let (its_kind, its_subtype) = parts.next()?.split_once('/')?;
        let is = |it: &str, name: &str| it.eq_ignore_ascii_case(name);
        let specificity = match (its_kind, its_subtype) {
            ("*", "*") => 0,
            (it, "*") if is(it, kind) => 1,
            (it, its) if is(it, kind) && is(its, subtype) => 2,
            _ => return None,
        };
        let quality = parts.find_map(|it| {
            let (name, value) = it.split_once('=')?;
            is(name, "q").then(|| thousandths(value))
        });
        Some((specificity, quality.unwrap_or(1000)))
    };
    let best = ranges.filter_map(of_range).max();
    best.map_or(0, |(_, quality)| quality)
}

/// 0 for what is no quality.
fn thousandths(quality: &str) -> u16 {
    let (whole, fraction) = quality.split_once('.').unwrap_or((quality, ""));
    match format!("{whole}{fraction:0<3}").parse() {
        Ok(it @ 0..=1000) if fraction.len() <= 3 => it,
        Ok(_) | Err(_) => 0,
    }
}

/// The formats differ in comments: in that of Prometheus a family is named as its samples are.
fn to_prometheus(text: &str) -> String {
    let mut converted = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        let comment = line.strip_prefix("# ");
        let Some((keyword, rest)) = comment.and_then(|it| it.split_once(' ')) else {
            if comment.is_none() {
                push_line(&mut converted, &[line]);
            }
            continue;
        };
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        match keyword {
            // The type, which follows, decides about the name.
            "HELP" => help = Some(value),
            "TYPE" => {
                let (suffix, kind) = match value {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some(help) = help.take() {
                    push_line(&mut converted, &["# HELP ", name, suffix, " ", help]);
                }
                push_line(&mut converted, &["# TYPE ", name, suffix, " ", kind]);
            }
            _ => {}
        }
    }
    converted
}

fn push_line(text: &mut String, parts: &[&str]) {
    text.extend(parts.iter().copied().chain(["\n"]));
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::{TextFormat::*, *};

    #[test]
    fn accept_decides_on_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, format) in [
            (&[][..], OpenMetrics),
            (&[""], OpenMetrics),
            (&["*/*"], OpenMetrics),
            (&[prometheus], OpenMetrics),
            (&[browser], OpenMetrics),
            (&["application/json"], OpenMetrics),
            (&["text/plain"], Prometheus),
            (&["Text/Plain; version=0.0.4"], Prometheus),
            (&["text/*"], Prometheus),
            (&["text/plain, */*;q=0.1"], Prometheus),
            (
                &["text/plain;q=0.5", "application/openmetrics-text;q=0.25"],
                Prometheus,
            ),
            (
                &["text/plain;q=0.5, application/openmetrics-text"],
                OpenMetrics,
            ),
            (&["text/plain;q=0, */*"], OpenMetrics),
            (&["text/plain;q=2"], OpenMetrics),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(TextFormat::accepted(&headers), format, "{accept:?}");
        }
    }

    #[test]
    fn families_are_named_as_their_samples() {
        let open = "\
# HELP a Requests.
# TYPE a counter
a_total{b=\"# c\"} 1
# HELP d_seconds Age.
# TYPE d_seconds gauge
# UNIT d_seconds seconds
d_seconds 2.5
# HELP e Build.
# TYPE e info
e_info{version=\"1\"} 1
# EOF
";
        let text = "\
# HELP a_total Requests.
# TYPE a_total counter
a_total{b=\"# c\"} 1
# HELP d_seconds Age.
# TYPE d_seconds gauge
d_seconds 2.5
# HELP e_info Build.
# TYPE e_info gauge
e_info{version=\"1\"} 1
";
        assert_eq!(Prometheus.convert(open.to_owned()), text);
    }
}
