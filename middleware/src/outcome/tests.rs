use http::Response;

use super::*;

fn response(status: u16, headers: &[(&str, &str)]) -> Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn of(status: u16, headers: &[(&str, &str)]) -> Outcome {
    Outcome::of(Some(&response(status, headers)))
}

#[test]
fn responses_have_default_outcomes() {
    for status in [200, 204, 301, 304, 400, 401, 404, 408, 499] {
        assert_eq!(of(status, &[]), Outcome::Ok, "{status}");
    }
    for status in [500, 501, 502, 503, 504, 529] {
        assert_eq!(of(status, &[]), Outcome::Failed, "{status}");
    }
    assert_eq!(of(429, &[]), Outcome::Overloaded);
    assert_eq!(of(503, &[("retry-after", "soon")]), Outcome::Overloaded);
    assert_eq!(of(500, &[("retry-after", "1")]), Outcome::Failed);
    assert_eq!(Outcome::of(None), Outcome::Failed);
}

#[test]
fn grpc_status_in_the_head_decides() {
    for (status, outcome) in [
        ("0", Outcome::Ok),
        ("5", Outcome::Ok),
        ("8", Outcome::Overloaded),
        ("4", Outcome::Failed),
        ("14", Outcome::Failed),
    ] {
        assert_eq!(of(200, &[("grpc-status", status)]), outcome, "{status}");
    }
}

/// 2026-11-29T03:25:41Z.
const DATE: (&str, &str) = ("date", "Sun, 29 Nov 2026 03:25:41 GMT");

fn told(family: TargetHeaders, headers: &[(&str, &str)]) -> Result<Option<(f64, f64)>, ()> {
    let now = Moment::from_nanos(1);
    let seen = seen(&response(200, headers).headers, family, now).map_err(|_| ())?;
    Ok(seen.map(|it| (it.remaining.get(), it.whole_at.seconds_since(now))))
}

fn is_told(family: TargetHeaders, headers: &[(&str, &str)], expected: (f64, f64)) {
    let (remaining, reset) = told(family, headers).unwrap().unwrap();
    assert!(
        remaining == expected.0 && (reset - expected.1).abs() < 1e-6,
        "{headers:?}: {remaining} in {reset} s"
    );
}

#[test]
fn standard_headers_are_read() {
    let standard = |headers: &[(&str, &str)], expected| {
        is_told(TargetHeaders::Standard, headers, expected);
    };
    standard(&[("ratelimit", r#""minute";r=50;t=30"#)], (50.0, 30.0));
    standard(
        &[("ratelimit", r#""a";r=9;t=60, "b"; r=5; t=1"#)],
        (9.0, 60.0),
    );
    standard(
        &[
            ("ratelimit", r#""a";r=9;t=1"#),
            ("ratelimit", r#""b";r=0;t=5"#),
        ],
        (0.0, 5.0),
    );
    let of = |reset| {
        [
            ("x-ratelimit-remaining", "7"),
            ("x-ratelimit-reset", reset),
            DATE,
        ]
    };
    standard(&of("12"), (7.0, 12.0));
    standard(&of("1795922801"), (7.0, 60.0));
}

#[test]
fn headers_of_providers_are_read() {
    for (of, family) in [
        ("requests", TargetHeaders::OpenaiRequests),
        ("tokens", TargetHeaders::OpenaiTokens),
    ] {
        let remaining = format!("x-ratelimit-remaining-{of}");
        let reset = format!("x-ratelimit-reset-{of}");
        for (text, seconds) in [
            ("6m0s", 360.0),
            ("120ms", 0.12),
            ("1h2m3.5s", 3723.5),
            ("8.64s", 8.64),
        ] {
            let headers = [(&*remaining, "149984"), (&*reset, text)];
            is_told(family, &headers, (149_984.0, seconds));
        }
    }
    for (of, family) in [
        ("requests", TargetHeaders::AnthropicRequests),
        ("input-tokens", TargetHeaders::AnthropicInputTokens),
        ("output-tokens", TargetHeaders::AnthropicOutputTokens),
        ("tokens", TargetHeaders::AnthropicTokens),
    ] {
        let remaining = format!("anthropic-ratelimit-{of}-remaining");
        let reset = format!("anthropic-ratelimit-{of}-reset");
        for (text, seconds) in [
            ("2026-11-29T03:26:41Z", 60.0),
            ("2026-11-29T03:25:41.5Z", 0.5),
            ("2026-11-29T04:26:41+01:00", 60.0),
            ("2026-11-28T23:26:41-04:00", 60.0),
            ("2026-11-30T03:25:40Z", 86_399.0),
        ] {
            is_told(
                family,
                &[(&*remaining, "80"), (&*reset, text), DATE],
                (80.0, seconds),
            );
        }
    }
}

#[test]
fn unix_times_follow_the_calendar() {
    for (day, next) in [
        ("2024-02-28", "2024-02-29"),
        ("2024-02-29", "2024-03-01"),
        ("2026-02-28", "2026-03-01"),
        ("2026-12-31", "2027-01-01"),
        ("2000-02-29", "2000-03-01"),
    ] {
        let at = |day: &str| {
            let date = format!("{day}T00:00:00Z");
            target_headers::unix_time(&date).unwrap()
        };
        assert_eq!(at(next) - at(day), 86_400.0, "{day}");
    }
    assert_eq!(target_headers::unix_time("1970-01-01T00:00:01Z"), Some(1.0));
}

#[test]
fn absent_headers_tell_nothing() {
    for family in TargetHeaders::ALL {
        assert_eq!(told(family, &[DATE]), Ok(None));
    }
    // It is whole.
    let whole = [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "0")];
    assert_eq!(told(TargetHeaders::Standard, &whole), Ok(None));
}

#[test]
fn invalid_headers_are_told_apart() {
    let invalid = |family, headers: &[(&str, &str)]| {
        assert_eq!(told(family, headers), Err(()), "{headers:?}");
    };
    for value in [
        "",
        "50",
        r#""a";r=50"#,
        r#""a";r=-1;t=5"#,
        r#""a";r=x;t=5"#,
        r#""a";r=1;t=86401"#,
    ] {
        invalid(TargetHeaders::Standard, &[("ratelimit", value)]);
    }
    invalid(TargetHeaders::Standard, &[("x-ratelimit-remaining", "5")]);
    invalid(TargetHeaders::Standard, &[("x-ratelimit-reset", "5")]);
    for (remaining, reset) in [
        ("-5", "1s"),
        ("5", "5"),
        ("5", "1x"),
        ("5", ""),
        ("1e9", "1s"),
        ("5", "s"),
    ] {
        let of = [
            ("x-ratelimit-remaining-tokens", remaining),
            ("x-ratelimit-reset-tokens", reset),
        ];
        invalid(TargetHeaders::OpenaiTokens, &of);
    }
    for reset in [
        "60",
        "2026-11-29",
        "2026-13-29T03:26:41Z",
        "2026-11-29T25:26:41Z",
        "2026-11-29T03:26:41",
        "2026-11-29T03:26Z",
        "2026-12-29T03:26:41Z",
    ] {
        let of = [
            ("anthropic-ratelimit-tokens-remaining", "5"),
            ("anthropic-ratelimit-tokens-reset", reset),
            DATE,
        ];
        invalid(TargetHeaders::AnthropicTokens, &of);
    }
    let undated = [
        ("anthropic-ratelimit-tokens-remaining", "5"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-29T03:26:41Z"),
    ];
    invalid(TargetHeaders::AnthropicTokens, &undated);
}
