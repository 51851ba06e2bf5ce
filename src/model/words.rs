//! Closed sets of words: an enum whose variants are spelled one way in TOML, JSON, code and speech.
//!
//! Owns the macro only. A set knows its own spelling, all its words (for hints and schemas), and nothing else.

/// A word that is not in the set it was looked up in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of {}", words.join(", "))]
pub struct UnknownWord {
    /// What was given, cut to a readable length.
    pub text: String,
    /// Every word that would have been understood.
    pub words: &'static [&'static str],
}

impl UnknownWord {
    /// The error for `text`, which is none of `words`.
    pub fn new(text: &str, words: &'static [&'static str]) -> Self {
        Self { text: text.chars().take(64).collect(), words }
    }
}

/// Defines an enum with one spelling per variant: `as_str`, `FromStr`, `Display`, serde as a string, `ALL` and `WORDS`.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }
        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// Every spelling, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// The one spelling of this variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::model::words::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err($crate::model::words::UnknownWord::new(text, Self::WORDS)),
                }
            }
        }
    };
}
pub(crate) use words;
