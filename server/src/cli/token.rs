//! `doorman token`: a token, for those who have no issuer.

use std::{path::PathBuf, time::Duration};

use clap::builder::NonEmptyStringValueParser;
use doorman_openapi::{Scope, Scopes};
use doorman_server::{AuthSettings, Token};

use super::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  (umask 077; head -c 32 /dev/urandom | base64 > secret)\n  doorman token --secret-file secret --sub orders --scope capacity --client-id 'orders*' --ttl 30d > orders.token\n  doorman token --secret-file secret --sub alice --scope status:read --resources 'tenant/acme*'"
)]
pub(super) struct Arguments {
    /// The secret of the servers that the token is for: their --auth-secret-file
    #[arg(long, env = "DOORMAN_AUTH_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
    /// Whom it speaks of
    #[arg(long, env = "DOORMAN_TOKEN_SUB", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    sub: String,
    /// What its bearer may do: capacity, server, templates:read, templates:write, status:read
    #[arg(
        long,
        env = "DOORMAN_TOKEN_SCOPE",
        value_name = "SCOPES",
        required = true,
        value_delimiter = ',',
        value_parser = scopes
    )]
    scope: Vec<Scopes>,
    /// In the name of which clients, or nodes, it leases: globs. Absent: any
    #[arg(
        long,
        env = "DOORMAN_TOKEN_CLIENT_ID",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    client_id: Vec<String>,
    /// Which resources it may touch: globs. Absent: any
    #[arg(
        long,
        env = "DOORMAN_TOKEN_RESOURCES",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    resources: Vec<String>,
    /// The rules of which services it may touch: globs. Absent: any
    #[arg(
        long,
        env = "DOORMAN_TOKEN_SERVICES",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    services: Vec<String>,
    /// The highest priority that it may ask with. Absent: any
    #[arg(
        long,
        env = "DOORMAN_TOKEN_MAX_PRIORITY",
        value_name = "N",
        allow_negative_numbers = true
    )]
    max_priority: Option<i32>,
    /// How long it counts: seconds, or a number with s, m, h or d
    #[arg(long, env = "DOORMAN_TOKEN_TTL", value_name = "TIME", default_value = "24h", value_parser = lifetime)]
    ttl: Duration,
    /// What it names as `iss`: the servers' --auth-secret-issuer
    #[arg(long, env = "DOORMAN_AUTH_SECRET_ISSUER", value_name = "NAME", default_value = AuthSettings::NAME)]
    issuer: String,
    /// What it names as `aud`: the servers' --auth-audience
    #[arg(long, env = "DOORMAN_AUTH_AUDIENCE", value_name = "NAME", default_value = AuthSettings::NAME)]
    audience: String,
}

/// Other than in a token, a name that is not ours is a mistake.
fn scopes(text: &str) -> Result<Scopes, String> {
    let scope = |name| {
        Scope::from_name(name).ok_or_else(|| {
            let all: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            format!("`{name}` is no scope: there are {}", all.join(", "))
        })
    };
    text.split_ascii_whitespace().map(scope).collect()
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong =
        || "must be a number above 0, of seconds or with s, m, h or d, such as 12h".to_owned();
    let digits = text
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: u64 = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(seconds) {
        Some(seconds) if (1..=MOST_SECONDS).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        Some(0) | None => Err(wrong()),
        Some(_) => Err("must be 3650d at most".to_owned()),
    }
}

/// Ten years; what should count longer should not be a token.
const MOST_SECONDS: u64 = 3_650 * 86_400;

pub(super) fn run(arguments: Arguments) -> Result<String, Failure> {
    let Arguments {
        secret_file,
        sub,
        scope,
        client_id,
        resources,
        services,
        max_priority,
        ttl,
        issuer,
        audience,
    } = arguments;
    let token = Token {
        issuer,
        audience,
        subject: sub,
        scopes: scope.iter().flat_map(|it| it.iter()).collect(),
        clients: client_id,
        resources,
        services,
        max_priority,
        lifetime: ttl,
    };
    Ok(format!("{}\n", token.sign(&secret_file)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_units() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("15m", 900),
            ("24h", 86_400),
            ("30d", 2_592_000),
        ] {
            assert_eq!(lifetime(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in [
            "",
            "0",
            "0h",
            "-1",
            "1w",
            "1.5h",
            "h",
            "99999999999999999999",
            "3651d",
            "1 h",
        ] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_scope_that_is_none_is_a_mistake() {
        assert_eq!(
            scopes("capacity status:read").unwrap().to_string(),
            "capacity status:read"
        );
        assert!(scopes("capacty").unwrap_err().contains("templates:write"));
    }
}
