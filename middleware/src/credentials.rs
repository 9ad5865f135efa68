//! Credentials for the control plane.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

use http::HeaderValue;
use tokio::io::AsyncReadExt;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The most bytes read of a token file.
const MAX_TOKEN_FILE: u64 = 64 * 1024;

/// A bearer token for the control plane, or its source. It never appears in debug output or logs.
///
/// ```
/// use tower_doorman::Credentials;
///
/// let fixed = Credentials::token("secret");
/// let mounted = Credentials::file("/run/doorman/token");
/// let minted = Credentials::from_fn(|| Ok("secret".to_owned()));
/// assert!(!format!("{fixed:?} {mounted:?} {minted:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Credentials(Kind);

#[derive(Clone)]
enum Kind {
    Token(Arc<str>),
    File(Arc<PathBuf>),
    Closure(Arc<dyn Fn() -> Result<String, Error> + Send + Sync>),
}

impl Credentials {
    /// A token that does not change.
    #[must_use]
    pub fn token(token: impl Into<String>) -> Self {
        Self(Kind::Token(token.into().into()))
    }

    /// A file with the token; surrounding white space is ignored. It is read for every request, so
    /// that a token replaced in place, as by Kubernetes, is used.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File(Arc::new(path.into())))
    }

    /// A closure that returns the token. It is called for every request on the worker's task, so it
    /// must not block. If it fails or panics, the request fails and is retried.
    #[must_use]
    pub fn from_fn(
        token: impl Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Kind::Closure(Arc::new(token)))
    }

    pub(crate) async fn header(&self) -> Result<HeaderValue, Error> {
        match &self.0 {
            Kind::Token(token) => bearer(token),
            Kind::File(path) => {
                let read = async {
                    let mut text = String::new();
                    let file = tokio::fs::File::open(&**path).await?;
                    file.take(MAX_TOKEN_FILE).read_to_string(&mut text).await?;
                    bearer(text.trim())
                };
                let path = path.display();
                read.await
                    .map_err(|error| format!("cannot read token file `{path}`: {error}").into())
            }
            Kind::Closure(token) => bearer(&call_unwinding(&**token)?),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        match &self.0 {
            Kind::Token(token) => bearer(token).map(drop),
            Kind::File(_) | Kind::Closure(_) => Ok(()),
        }
    }
}

/// A panic in the closure fails a request, not the worker with all its leases.
fn call_unwinding(
    token: &(dyn Fn() -> Result<String, Error> + Send + Sync),
) -> Result<String, Error> {
    catch_unwind(AssertUnwindSafe(token))
        .unwrap_or_else(|_| Err("the token closure panicked".into()))
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    if token.is_empty() {
        return Err("the token is empty".into());
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "the token contains characters that are invalid in a header")?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Token(_) => f.write_str("Credentials::token(***)"),
            Kind::File(path) => write!(f, "Credentials::file({path:?})"),
            Kind::Closure(_) => f.write_str("Credentials::from_fn(***)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn invalid_token_is_rejected_without_showing_it() {
        for token in ["", "sec\nret"] {
            let credentials = Credentials::token(token);
            let error = credentials.header().await.unwrap_err().to_string();
            assert!(!error.contains("ret"), "{error}");
            assert!(credentials.validate().is_err());
        }
    }

    #[tokio::test]
    async fn panicking_closure_is_an_error() {
        let credentials = Credentials::from_fn(|| panic!("a bug"));
        let error = credentials.header().await.unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }

    #[tokio::test]
    async fn header_is_sensitive() {
        let header = Credentials::token("secret").header().await.unwrap();
        assert_eq!(header, "Bearer secret");
        assert!(!format!("{header:?}").contains("secret"));
    }

    #[tokio::test]
    async fn token_file_is_read_for_every_request() {
        let path = std::env::temp_dir().join(format!("doorman-token-{}", fastrand::u64(..)));
        let credentials = Credentials::file(&path);
        let error = credentials.header().await.unwrap_err().to_string();
        let expected = format!("cannot read token file `{}`: No such file", path.display());
        assert!(error.starts_with(&expected), "{error}");
        for token in ["one", "two"] {
            std::fs::write(&path, format!(" {token}\n")).unwrap();
            let header = credentials.header().await.unwrap();
            assert_eq!(header, format!("Bearer {token}"));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
