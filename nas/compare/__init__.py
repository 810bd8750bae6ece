"""Two benches of the same networks side by side: latency, throughput, energy, cost, and a roofline."""
