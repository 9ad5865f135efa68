//! Texts of errors.

use std::{error::Error, iter::successors};

/// An error with its sources in one line. Most errors leave their sources out of their own text.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let sources = successors(Some(error), |&error| error.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    texts.join(": ")
}

/// A `main` that returns `Result<(), Box<dyn Error>>` prints its error by `Debug`.
macro_rules! debug_as_text {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::error::error_chain(self))
            }
        }
    )+};
}
pub(crate) use debug_as_text;

#[cfg(test)]
mod tests {
    use crate::{BuildError, Cost, Doorman, Limit, NotReady, TrustedProxies};

    #[test]
    fn main_prints_the_text_of_an_error() {
        let invalid = Doorman::unlimited().layer(Limit::rate("tenant/{x-tenant}"));
        let invalid = invalid.map(drop).unwrap_err();
        let text = "limit `tenant/{x-tenant}`: invalid key \"tenant/{x-tenant}\": \
                    unknown placeholder {x-tenant}; must be ";
        assert!(format!("{invalid:?}").starts_with(text), "{invalid:?}");

        let builder = Doorman::builder("http://a:7300").max_keys(0);
        let (unused, _) = tower_test::mock::pair::<http::Request<bytes::Bytes>, _>();
        let no_keys: BuildError = builder.build_with(unused).map(drop).unwrap_err();
        assert_eq!(
            format!("{no_keys:?}"),
            "max_keys: must be at least 1, not 0"
        );

        let networks = TrustedProxies::networks(["x"], crate::ForwardedHeader::Forwarded);
        let errors: [Box<dyn std::error::Error>; 3] = [
            Box::new(networks.unwrap_err()),
            Box::new(Cost::new(-1.0).unwrap_err()),
            Box::new(NotReady::TimedOut { last_failure: None }),
        ];
        for error in errors {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn debug_includes_the_sources_of_an_error() {
        let builder = Doorman::builder("http://a:7300").client_identity_files("/no/crt", "/no/key");
        let error = builder.build().map(drop).unwrap_err();
        let text = format!("{error:?}");
        assert!(
            text.starts_with("cannot set up TLS with these certificates: ")
                && text.contains("/no/crt"),
            "{text}"
        );
    }
}
