# An HTTP server: perl web-server.pl PORT VERSION [bad]
#
# It answers each request with its version. A bad server runs, but never listens, so it fails its
# health checks. On SIGTERM it answers the waiting requests and ends.
use strict;
use warnings;
use IO::Socket::INET;

my ($port, $version, $bad) = @ARGV;
my $stopping = 0;
$SIG{TERM} = sub { $stopping = 1 };
sleep if $bad;
my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 128, ReuseAddr => 1)
    or die "cannot listen on $port: $!";
while (!$stopping) {
    my $client = $server->accept or next;
    answer($client);
}
$server->blocking(0);
while (my $client = $server->accept) {
    $client->blocking(1);
    answer($client);
}

sub answer {
    my ($client) = @_;
    my $request = <$client> // '';
    while (my $line = <$client>) {
        last if $line =~ /^\r?\n$/;
    }
    print $client "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n$version\n";
    close $client;
}
