//! Families of headers by which a target tells of its own limit.

use serde::{Deserialize, Serialize};

/// The response headers by which a target tells what is left of its own limit, and when that is
/// whole again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TargetHeaders {
    /// `RateLimit` with `r` and `t`; else `x-ratelimit-remaining` and `x-ratelimit-reset`, in
    /// seconds or as a Unix time.
    Standard,
    /// `x-ratelimit-remaining-requests` and `x-ratelimit-reset-requests`, as OpenAI sends them.
    OpenaiRequests,
    /// The same of tokens.
    OpenaiTokens,
    /// `anthropic-ratelimit-requests-remaining` and `anthropic-ratelimit-requests-reset`.
    AnthropicRequests,
    /// The same of input tokens.
    AnthropicInputTokens,
    /// The same of output tokens.
    AnthropicOutputTokens,
    /// The same of the tokens of the most restrictive limit.
    AnthropicTokens,
}

impl TargetHeaders {
    /// All of them, in the order of their names in documents.
    pub const ALL: [Self; 7] = [
        Self::Standard,
        Self::OpenaiRequests,
        Self::OpenaiTokens,
        Self::AnthropicRequests,
        Self::AnthropicInputTokens,
        Self::AnthropicOutputTokens,
        Self::AnthropicTokens,
    ];

    /// The name in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::OpenaiRequests => "openai-requests",
            Self::OpenaiTokens => "openai-tokens",
            Self::AnthropicRequests => "anthropic-requests",
            Self::AnthropicInputTokens => "anthropic-input-tokens",
            Self::AnthropicOutputTokens => "anthropic-output-tokens",
            Self::AnthropicTokens => "anthropic-tokens",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_documents() {
        for headers in TargetHeaders::ALL {
            let written = serde_json::to_value(headers).unwrap();
            assert_eq!(written, headers.as_str());
        }
    }
}
