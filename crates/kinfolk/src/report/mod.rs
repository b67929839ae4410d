//! What people look at: tables, pages and pictures.

pub mod clustering;
mod comparisons;
pub mod html;
mod mixtures;
pub mod table;
