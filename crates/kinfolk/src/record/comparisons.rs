//! Distances between clients.

use super::*;
use crate::methods::Comparison;

/// Distances between clients, as one method measured them on one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRecord {
    /// The method's label.
    pub label: String,
    /// The seed of this repeat.
    pub seed: u64,
    /// The clients' ids.
    pub clients: Vec<String>,
    /// The cluster each was planted in, where all were.
    pub truth: Option<Vec<usize>>,
    /// The pairs and their distances.
    pub found: Comparison,
}

table_row! {
    /// Two clients that were compared.
    pub struct DistanceRecord in "distances.csv" {
        /// The method's label.
        pub label: String,
        /// The seed of this repeat.
        pub seed: u64,
        /// The id of one client.
        pub client: String,
        /// The id of the other.
        pub other: String,
        /// How far they are apart.
        pub distance: f64,
        /// 1 where that is near enough to belong together, otherwise 0.
        pub within: u8,
    }
}

/// The bytes of distances.csv; `None` where no method compared clients.
pub(crate) fn distances_csv(comparisons: &[ComparisonRecord]) -> Result<Option<Vec<u8>>> {
    let rows = comparisons.iter().flat_map(|record| {
        record.found.pairs.iter().map(move |&(a, b, distance)| DistanceRecord {
            label: record.label.clone(),
            seed: record.seed,
            client: record.clients[a as usize].clone(),
            other: record.clients[b as usize].clone(),
            distance,
            within: record.found.lambda.is_none_or(|lambda| distance <= lambda).into(),
        })
    });
    (!comparisons.is_empty()).then(|| table::write::<DistanceRecord>(rows)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fabricated;

    #[test]
    fn distances_have_the_columns_of_the_contract() {
        let bytes = distances_csv(&fabricated::record().comparisons).expect("in memory").expect("one");
        assert_eq!(
            String::from_utf8(bytes).expect("csv is text"),
            "label,seed,client,other,distance,within\n\"a, \"\"quoted\"\"\",0,north,\"south, \"\"far\"\"\",0.5,1\n"
        );
        assert!(distances_csv(&[]).expect("in memory").is_none());
    }
}
