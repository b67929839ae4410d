//! The arena's page: tables that can be sorted and filtered, in one self-contained html file.

use super::Filled;

const PAGE: &str = include_str!("page.html");

/// The page of some tables.
pub fn page(tables: &[Filled]) -> String {
    let content = serde_json::to_string(tables).unwrap_or_else(|_| "[]".into());
    // In a script only `<` can end the data or open a comment.
    PAGE.replace("/*content*/[]", &content.replace('<', "\\u003c"))
}
